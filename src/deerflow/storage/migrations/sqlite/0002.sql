-- The questions that wait for an answer, as JSON by task, so that a list of threads reads no checkpoints.
ALTER TABLE threads ADD COLUMN interrupts TEXT;
-- Whether the last answer is a question to the person.
ALTER TABLE threads ADD COLUMN asks BOOLEAN NOT NULL DEFAULT FALSE
