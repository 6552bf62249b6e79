"""`parcelpost doctor`: the checks it runs, its report and the support bundle."""
