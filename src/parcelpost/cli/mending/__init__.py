"""What `parcelpost tasks` and `parcelpost results` share: filters, lists, and a person's operation on many at once."""
