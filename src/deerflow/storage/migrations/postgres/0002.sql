-- Name, version and digest of the skills that the run used, as JSON.
ALTER TABLE runs ADD COLUMN skills TEXT;
