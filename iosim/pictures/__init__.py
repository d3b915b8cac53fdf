"""Charts, SVG, and the page of `iosim report`."""
