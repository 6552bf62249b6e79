"""`bench parse`: reading pages, beside an ordinary scraper."""
