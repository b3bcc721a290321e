"""From printed text to something that can be called: compiler, cache, launcher, reference."""
