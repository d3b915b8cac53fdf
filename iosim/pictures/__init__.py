"""Pictures: charts as values, drawn by matplotlib or as SVG, and the page of `iosim report`."""
