CREATE TABLE `service_breakers` (
	`tenant` text NOT NULL,
	`service` text NOT NULL,
	`version` integer NOT NULL,
	`open_until` integer NOT NULL,
	`trial_until` integer,
	PRIMARY KEY(`tenant`, `service`)
);
