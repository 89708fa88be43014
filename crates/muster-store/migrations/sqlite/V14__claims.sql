-- The table holds claims: space freed by an eviction and held for the preemptor. Reservations are the planner's, and
-- are not stored.
ALTER TABLE reservations RENAME TO claims;
DROP INDEX reservations_live;
CREATE UNIQUE INDEX claims_live ON claims (number, idx) WHERE ended_at IS NULL;
