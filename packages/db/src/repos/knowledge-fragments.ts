/**
 * Parts of statements about knowledge bases, with `b` for the base and `d` for the document.
 * Nothing here comes from outside.
 */
import { ended } from "./calls-rows.ts";

/** The base of a document. */
export const baseOfDocument = "b.tenant = d.tenant AND b.id = d.knowledge_base";

/** One that is no JSON would end the whole statement; it names nobody. */
const acl = `CASE WHEN d.acl IS NULL THEN json_extract(b.config, '$.acl')
  WHEN json_valid(d.acl) THEN d.acl ELSE '{}' END`;
/** Nothing where it is no JSON. */
export const metadataOfDocument = "CASE WHEN json_valid(d.metadata) THEN d.metadata ELSE '{}' END";

/**
 * May this reader read document `d` of base `b`? Part of every statement that finds any, so that what must not be
 * read takes nobody's place.
 * @param reader an argument that is bound to the JSON of a `KnowledgeReader`
 */
export function mayRead(reader: string): string {
  const isNamed = (list: string, field: string): string =>
    `EXISTS (SELECT 1 FROM json_each(${acl}, '$.${list}') WHERE value = json_extract(${reader}, '$.${field}'))`;
  return `(json_extract(${reader}, '$.all') = 1 OR (${acl}) IS NULL OR ${isNamed("roles", "role")}
    OR ${isNamed("users", "user")} OR ${isNamed("business_units", "business_unit")})`;
}

/** Nobody is at work on document `d`: it is done, or the call that was to do it has ended without saying so. */
export const isAtRest = `(d.state IN ('ready', 'failed') OR NOT EXISTS (
  SELECT 1 FROM calls AS c WHERE c.tenant = d.tenant AND c.id = d.call_id AND c.state NOT IN ${ended}))`;

/** The state of document `d` with what its call says. */
export const stateOfDocument = `CASE WHEN d.state IN ('ready', 'failed') THEN d.state
  WHEN ${isAtRest} THEN 'failed' ELSE d.state END`;

/** Is what serves of document `d` still to come into the index that is being built? */
export const isToBuild = `(b.next_index_version IS NOT NULL AND d.current_version IS NOT NULL
  AND NOT (d.built_index_version IS b.next_index_version AND d.built_version IS d.current_version))`;
