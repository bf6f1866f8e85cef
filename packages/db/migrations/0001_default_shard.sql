-- The directory is the first shard; where no other is named, tenants live there.
INSERT INTO shards (id) VALUES ('default');
