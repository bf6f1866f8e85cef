/** Variables of a tenant. Contract: `VariableRepo`. */
import { and, asc, eq, getTableColumns, getTableName, sql, type SQL } from "drizzle-orm";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { VariableRepo } from "@toolyard/core/ports/variables";
import {
  inlineBytes,
  mostVariables,
  variableKindSchema,
  type NewVariable,
  type VariableEntry,
} from "@toolyard/core/vcp/placeholders/variable";
import { nowMs } from "../columns.ts";
import type { Shards, Statement, StatementResult } from "../database.ts";
import { vcpVariables } from "../schema/vcp-variables.ts";
import { build, statement } from "../sql.ts";
import {
  type OnBrokenRow,
  otherVersion,
  raiseConfigVersion,
  readAll,
  type Reader,
  readFirst,
  readPage,
  selectPage,
} from "./rows.ts";

function variableReader(onBrokenRow: OnBrokenRow): Reader<typeof vcpVariables, VariableEntry> {
  return {
    table: vcpVariables,
    tableName: getTableName(vcpVariables),
    key: vcpVariables.id,
    onBrokenRow,
    toRecord: ({ tenant: _tenant, content, kind, ...variable }) => ({
      ...variable,
      kind: variableKindSchema.parse(kind),
      content: variable.bytes <= inlineBytes ? content : null,
    }),
  };
}

/** All of a tenant, for its snapshot: large contents stay where they are. */
export function selectVariables(tenant: string): Statement {
  const { content, ...columns } = getTableColumns(vcpVariables);
  const inline = sql`CASE WHEN ${vcpVariables.bytes} <= ${inlineBytes} THEN ${content} END`.as(content.name);
  return statement(
    build
      .select({ ...columns, content: inline })
      .from(vcpVariables)
      .where(eq(vcpVariables.tenant, tenant))
      .orderBy(asc(vcpVariables.position), asc(vcpVariables.id)),
  );
}

export function createVariableRepo(shards: Shards, onBrokenRow: OnBrokenRow): VariableRepo {
  const reader = variableReader(onBrokenRow);
  const insert = async (
    tenant: string,
    variables: readonly NewVariable[],
    { replace }: { readonly replace: boolean },
  ): Promise<readonly StatementResult[]> => {
    const rows = JSON.stringify(variables.map(toRow));
    return shards.databaseFor(tenant).batch(
      [
        { sql: `${insertVariables} ${replace ? replaceWhereOther : "DO NOTHING"}`, args: [tenant, rows] },
        raiseConfigVersion(tenant),
        { sql: "SELECT COUNT(*) AS variables FROM vcp_variables WHERE tenant = ?1", args: [tenant] },
        statement(
          build
            .select()
            .from(vcpVariables)
            .where(own(tenant, variables[0]?.id ?? "")),
        ),
      ],
      { repeatable: true },
    );
  };
  return {
    create: async (tenant, variable) => {
      const [, , counted, found] = await insert(tenant, [variable], { replace: false });
      const created = readFirst(reader, found);
      if (created !== undefined) return created;
      throw Number(counted?.rows[0]?.["variables"]) >= mostVariables ? tooMany() : nameTaken(variable);
    },

    putAll: async (tenant, variables) => {
      if (variables.length === 0) return;
      const [inserted] = await insert(tenant, variables, { replace: true });
      if ((inserted?.changes ?? 0) > 0) return;
      const [missing] = await shards
        .databaseFor(tenant)
        .batch([{ sql: selectMissing, args: [tenant, JSON.stringify(variables.map(toRow))] }], { readonly: true });
      if (Number(missing?.rows[0]?.["missing"]) > 0) throw tooMany();
    },

    update: async (tenant, id, { content, options, position }, expectedVersion) => {
      const expected = expectedVersion === undefined ? undefined : eq(vcpVariables.version, expectedVersion);
      const update = build
        .update(vcpVariables)
        .set({
          ...(options === undefined ? {} : { options }),
          ...(position === undefined ? {} : { position }),
          ...(content === undefined
            ? {}
            : { content: content.text, hash: content.hash, bytes: Buffer.byteLength(content.text) }),
          version: sql`${vcpVariables.version} + 1`,
          updatedAt: nowMs,
        })
        .where(and(own(tenant, id), expected))
        .returning();
      const present = build.select({ version: vcpVariables.version }).from(vcpVariables).where(own(tenant, id));
      const [updated, , found] = await shards
        .databaseFor(tenant)
        .batch([statement(update), raiseConfigVersion(tenant), statement(present)]);
      const record = readFirst(reader, updated);
      const version = found?.rows[0]?.["version"];
      if (record === undefined && version !== undefined)
        throw otherVersion("variable", Number(version), expectedVersion);
      return record;
    },

    get: async (tenant, id) => {
      const [found] = await shards
        .databaseFor(tenant)
        .batch([statement(build.select().from(vcpVariables).where(own(tenant, id)))], { readonly: true });
      return readFirst(reader, found);
    },

    list: async (tenant, { kind, ...page }) => {
      const ofKind = kind === undefined ? undefined : eq(vcpVariables.kind, kind);
      const [found] = await shards
        .databaseFor(tenant)
        .batch([selectPage(reader, and(eq(vcpVariables.tenant, tenant), ofKind), page)], { readonly: true });
      return readPage(reader, found, page);
    },

    contents: async (tenant, ids) => {
      if (ids.length === 0) return [];
      const [found] = await shards
        .databaseFor(tenant)
        .batch([{ sql: selectContents, args: [tenant, JSON.stringify(ids)] }], { readonly: true });
      return (found?.rows ?? []).map(({ id, hash, content }) => ({
        id: String(id),
        hash: String(hash),
        content: String(content),
      }));
    },

    delete: async (tenant, id) => {
      const [deleted] = await shards
        .databaseFor(tenant)
        .batch([statement(build.delete(vcpVariables).where(own(tenant, id))), raiseConfigVersion(tenant)]);
      return (deleted?.changes ?? 0) > 0;
    },
  };
}

export function readVariables(rows: StatementResult | undefined, onBrokenRow: OnBrokenRow): readonly VariableEntry[] {
  return readAll(variableReader(onBrokenRow), rows);
}

const itsOwn = `(SELECT known.position FROM vcp_variables AS known WHERE known.tenant = ?1
    AND known.kind = value ->> 'kind' AND known.name = value ->> 'name')`;
const next = "(SELECT COALESCE(MAX(position), 0) + 1 FROM vcp_variables WHERE tenant = ?1)";
const newOnes = `(SELECT COUNT(*) FROM json_each(?2) AS wanted WHERE NOT EXISTS (SELECT 1 FROM vcp_variables AS known
    WHERE known.tenant = ?1 AND known.kind = wanted.value ->> 'kind' AND known.name = wanted.value ->> 'name'))`;

/** All of them or, where they would be too many, none. */
const insertVariables = `INSERT INTO vcp_variables (id, tenant, kind, name, options, position, hash, bytes, content)
  SELECT value ->> 'id', ?1, value ->> 'kind', value ->> 'name', value ->> 'options',
    COALESCE(value ->> 'position', ${itsOwn}, ${next}), value ->> 'hash', value ->> 'bytes', value ->> 'content'
  FROM json_each(?2)
  WHERE (SELECT COUNT(*) FROM vcp_variables WHERE tenant = ?1) + ${newOnes} <= ${mostVariables}
  ON CONFLICT`;

/** What is as it was is not written: its version stays, and so does that of the configuration. */
const replaceWhereOther = `(tenant, kind, name) DO UPDATE SET options = excluded.options, position = excluded.position, hash = excluded.hash,
    bytes = excluded.bytes, content = excluded.content, version = version + 1, updated_at = excluded.updated_at
  WHERE hash <> excluded.hash OR options <> excluded.options OR position <> excluded.position
  ON CONFLICT (id) DO NOTHING`;

const selectMissing = `SELECT ${newOnes} AS missing`;

const selectContents = `SELECT id, hash, content FROM vcp_variables
  WHERE tenant = ?1 AND id IN (SELECT value FROM json_each(?2))`;

function toRow({ id, kind, name, options, position, hash, content }: NewVariable): object {
  return {
    id,
    kind,
    name,
    options: JSON.stringify(options),
    position: position ?? null,
    hash,
    bytes: Buffer.byteLength(content),
    content,
  };
}

function own(tenant: string, id: string): SQL | undefined {
  return and(eq(vcpVariables.tenant, tenant), eq(vcpVariables.id, id));
}

function nameTaken({ kind, name }: NewVariable): GatewayError {
  return new GatewayError("conflict", `There is a variable '${name}' of kind '${kind}' already; change that one.`, {
    param: "name",
  });
}

function tooMany(): GatewayError {
  return new GatewayError("conflict", `A tenant has at most ${mostVariables} variables; delete some first.`, {
    param: "name",
  });
}
