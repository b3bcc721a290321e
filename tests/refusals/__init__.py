"""Programs that are refused, as a newcomer would write them."""

VALUE = "which is known only when the compiled function runs"
