"""``python check.py strict_adapter.py --strict``: see `adapter.Strict`."""

from adapter import adapter as relaxed

adapter = relaxed.strict
