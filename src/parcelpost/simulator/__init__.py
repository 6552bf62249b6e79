"""County websites that exist only here: invented parcels in the real structure of their platforms."""
