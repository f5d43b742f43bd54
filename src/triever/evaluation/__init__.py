"""What a run is worth: measures, calibration, significance and the report that shows them."""
