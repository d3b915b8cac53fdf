"""Pictures: charts and other drawings as values with their SVG, and the page of `iosim report`."""
