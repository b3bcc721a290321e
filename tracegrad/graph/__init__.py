"""The tensor IR: values, nodes, graphs, views as values, text."""
