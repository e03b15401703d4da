"""Programs around the core: each depends on it, and the core knows none of them."""
