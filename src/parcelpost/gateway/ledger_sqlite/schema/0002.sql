-- The latest liens are looked for among the parcels that have any, however few those are.
CREATE INDEX parcels_with_liens ON parcels (received_at) WHERE lien_count > 0;
