/** Work on behalf of all tenants, in every database that holds some. */
import type { Database, Shards, StatementResult } from "../database.ts";

/**
 * What each database that can be reached gives: one that is away keeps its tenants' work until it is back, and the
 * others' from nothing.
 * @throws GatewayError what the first met, where none can be reached
 */
export async function everyShard<T>(shards: Shards, work: (database: Database) => Promise<T>): Promise<readonly T[]> {
  const answers = await Promise.allSettled(shards.all().map(work));
  const given = answers.flatMap((answer) => (answer.status === "fulfilled" ? [answer.value] : []));
  for (const answer of answers) if (answer.status === "rejected" && given.length === 0) throw answer.reason;
  return given;
}

/** Of any one statement on any one database: whether there may be more of its kind. */
export function mostChanges(answers: readonly (readonly StatementResult[])[]): number {
  return Math.max(0, ...answers.flat().map(({ changes }) => changes));
}
