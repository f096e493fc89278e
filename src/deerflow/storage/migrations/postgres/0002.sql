-- The questions that wait for an answer, as JSON by task, so that a list of threads reads no checkpoints.
ALTER TABLE threads ADD COLUMN interrupts TEXT
