"""`bench scrape`: whole runs against one county site, beside Scrapy, Crawlee and a plain loop."""
