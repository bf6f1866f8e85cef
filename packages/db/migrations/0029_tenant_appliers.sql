ALTER TABLE `tenants` ADD `applier` text;--> statement-breakpoint
ALTER TABLE `tenants` ADD `apply_until` integer;