-- How many projects an organization has, and how many placements a node: kept with every change, since counting costs the
-- more the more there are. Triggers keep them, so that whichever release writes keeps them right.
CREATE TABLE projects.counts (
    org_id uuid CONSTRAINT counts_pkey PRIMARY KEY CONSTRAINT counts_org_id_fkey REFERENCES orgs.orgs (id) ON DELETE CASCADE,
    -- Those that are not deleted.
    projects bigint NOT NULL CONSTRAINT counts_projects_check CHECK (projects >= 0)
);

CREATE FUNCTION projects.count_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO projects.counts AS c (org_id, projects)
        SELECT org_id, count(*) FROM added WHERE deleted_at IS NULL GROUP BY org_id ORDER BY org_id
        ON CONFLICT (org_id) DO UPDATE SET projects = c.projects + EXCLUDED.projects;
    RETURN NULL;
END
$$;
CREATE TRIGGER projects_added AFTER INSERT ON projects.projects
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION projects.count_added();

CREATE FUNCTION projects.count_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE projects.counts SET projects = projects + CASE WHEN NEW.deleted_at IS NULL THEN 1 ELSE -1 END
        WHERE org_id = NEW.org_id;
    RETURN NULL;
END
$$;
CREATE TRIGGER projects_deleted AFTER UPDATE OF deleted_at ON projects.projects
    FOR EACH ROW WHEN ((OLD.deleted_at IS NULL) <> (NEW.deleted_at IS NULL)) EXECUTE FUNCTION projects.count_deleted();

CREATE FUNCTION projects.count_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE projects.counts c SET projects = c.projects - gone.projects
        FROM (SELECT org_id, count(*) AS projects FROM removed WHERE deleted_at IS NULL GROUP BY org_id) gone
        WHERE c.org_id = gone.org_id;
    RETURN NULL;
END
$$;
CREATE TRIGGER projects_removed AFTER DELETE ON projects.projects
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION projects.count_removed();

-- The triggers keep writers away until this commits.
INSERT INTO projects.counts SELECT org_id, count(*) FROM projects.projects WHERE deleted_at IS NULL GROUP BY org_id;

ALTER TABLE convergence.nodes
    ADD COLUMN placements bigint NOT NULL DEFAULT 0 CONSTRAINT nodes_placements_check CHECK (placements >= 0);

CREATE FUNCTION convergence.count_placements() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        UPDATE convergence.nodes n SET placements = n.placements + come.number
            FROM (SELECT node_id, count(*) AS number FROM added GROUP BY node_id) come WHERE n.id = come.node_id;
    ELSIF TG_OP = 'DELETE' THEN
        UPDATE convergence.nodes n SET placements = n.placements - gone.number
            FROM (SELECT node_id, count(*) AS number FROM removed GROUP BY node_id) gone WHERE n.id = gone.node_id;
    ELSE
        UPDATE convergence.nodes n SET placements = n.placements + moved.number
            FROM (
                SELECT node_id, sum(number) AS number FROM (
                    SELECT node_id, 1 AS number FROM added UNION ALL SELECT node_id, -1 FROM removed
                ) each_row GROUP BY node_id HAVING sum(number) <> 0
            ) moved WHERE n.id = moved.node_id;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER placements_added AFTER INSERT ON convergence.placements
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION convergence.count_placements();
CREATE TRIGGER placements_moved AFTER UPDATE ON convergence.placements
    REFERENCING NEW TABLE AS added OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION convergence.count_placements();
CREATE TRIGGER placements_removed AFTER DELETE ON convergence.placements
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION convergence.count_placements();

UPDATE convergence.nodes n SET placements = p.number
    FROM (SELECT node_id, count(*) AS number FROM convergence.placements GROUP BY node_id) p WHERE p.node_id = n.id;
