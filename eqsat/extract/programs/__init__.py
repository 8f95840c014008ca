"""Programs without a proof: good ones fast, costly and random ones, and small changes to a given one."""
