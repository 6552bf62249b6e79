"""What `parcelpost tasks` and `parcelpost results` share: filters, lists, and a person's word on many at once."""
