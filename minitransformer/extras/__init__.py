"""Programs around the core: they import the core, and the core imports none of them."""
