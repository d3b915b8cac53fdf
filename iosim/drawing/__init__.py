"""How pictures are drawn: charts, sheets and pages as text. What is drawn comes from elsewhere."""
