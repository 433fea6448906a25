"""Labels made without training the classifier: instant correction, held-out labels, judging, refitting."""
