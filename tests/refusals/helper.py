"""A helper in a file of its own, for errors that arise in it."""


def absolute_value(v):
    if v > 0:
        return v
    return -v
