-- Every bundle of policies that was put into force: what, by whom, when. The newest of a scope is in force.
CREATE TABLE policies (
    version BIGINT PRIMARY KEY,
    scope TEXT NOT NULL,
    hash TEXT NOT NULL,
    -- As JSON: the name of each file and its content.
    files TEXT NOT NULL,
    -- As JSON: the questions it answers.
    hooks TEXT NOT NULL,
    applied_by TEXT NOT NULL,
    why TEXT NOT NULL,
    applied_at BIGINT NOT NULL
);
