/** Whether statements find their rows by an index, whatever has gathered in the tables until then. */
import { openDatabase } from "@toolyard/db/client";
import type { BatchContent, Database, Statement } from "@toolyard/db/database";

/** Tables that may be walked through, and why that takes no longer from day to day. */
const walked: Readonly<Record<string, string>> = {
  tenants: "what is due is sought tenant by tenant",
  shards: "few",
  schema_versions: "one row",
  sqlite_sequence: "a row a table",
  rate_windows: "a row a tenant, and one a key that has a limit",
  connection_tickets: "gone within a minute",
  queue_messages: "gone with their work; an erasure walks through what is under way",
};

/** Tables of which one tenant may have millions of rows. */
const large = ["calls", "node_runs", "webhook_deliveries", "sessions", "workspace_files", "flow_steps", "usage_days"];
/** Indexes that begin with the tenant and go on with the order in which pages are read. */
const inOrder: readonly string[] = ["calls_tenant_created", "sessions_tenant_created", "webhook_deliveries_created"];

/** The database, which keeps in mind what it is asked. */
export function remembering(database: Database, asked: Set<string>): Database {
  const remember = (statements: readonly Statement[]): readonly Statement[] => {
    for (const { sql } of statements) asked.add(sql);
    return statements;
  };
  const watched = (content: BatchContent): BatchContent =>
    "compose" in content
      ? {
          get size() {
            return content.size;
          },
          compose: () => remember(content.compose()),
        }
      : remember(content);
  return {
    batch: (content, options) => database.batch(watched(content), options),
    close: () => database.close(),
  };
}

/**
 * @param file that has the tables
 * @throws Error with each statement that walks through a table that grows
 */
export async function requireIndexed(file: string, asked: Iterable<string>): Promise<void> {
  const database = await openDatabase({ url: `file:${file}` });
  const walks = await walksOf(database, asked);
  await database.close();
  if (walks.length > 0) throw new Error(`These walk through tables that grow:\n${walks.join("\n")}`);
}

/**
 * Each with the step of its plan. Whoever wants nothing but the tenant's rows, some of them at a time, needs no more
 * than an index; whoever goes through that twice goes through all for each of the times.
 */
async function walksOf(database: Database, asked: Iterable<string>): Promise<readonly string[]> {
  const read = async (sql: string): Promise<readonly string[]> => {
    const [found] = await database.batch([{ sql, args: [] }], { readonly: true });
    return (found?.rows ?? []).map((row) => String(Object.values(row).at(-1)));
  };
  const tables = new Set(await read("SELECT name FROM sqlite_master WHERE type = 'table'"));
  const partial = new Set(await read("SELECT name FROM sqlite_master WHERE type = 'index' AND sql LIKE '% WHERE %'"));
  const walks: string[] = [];
  for (const sql of asked) {
    if (!/^\s*(?:with|select|insert|update|delete)\b/i.test(sql)) continue;
    const steps = await read(`EXPLAIN QUERY PLAN ${sql}`);
    for (const [at, step] of steps.entries()) {
      const [, name = "", index = "", ofTenant] =
        /^S(?:CAN|EARCH) (\w+)(?: USING (?:COVERING )?INDEX (\w+))?( \(tenant=\?\))?$/.exec(step) ?? [];
      const table = tables.has(name) ? name : tableNamed(name, sql);
      if (table === undefined || !tables.has(table) || partial.has(index)) continue;
      const isWalk =
        ofTenant === undefined
          ? step.startsWith("SCAN") && !(table in walked)
          : large.includes(table) &&
            !inOrder.includes(index) &&
            (!step.includes("COVERING") || steps.indexOf(step) < at);
      if (isWalk) walks.push(`${step}: ${sql}`);
    }
  }
  return walks;
}

/** Undefined: what a statement has put together itself. */
function tableNamed(alias: string, sql: string): string | undefined {
  return new RegExp(`\\b(?:from|join|update|into)\\s+"?(\\w+)"?\\s+as\\s+"?${alias}"?(?!\\w)`, "i").exec(sql)?.[1];
}
