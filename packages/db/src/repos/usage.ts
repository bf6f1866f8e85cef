/** Sums over the days that the meter keeps. Reads rows of the days asked for, and no others. */
import type { UsageGroup, UsageRepo, UsageSum } from "@toolyard/core/ports/budgets";
import type { Shards, SqlValue, StatementResult } from "../database.ts";

/** What the rows are put together by, and which rows count: a tool call has no model, a chat no tool. */
const groups = {
  day: { by: "strftime('%Y-%m-%d', day / 1000, 'unixepoch')", of: "" },
  key: { by: "caller_id", of: "" },
  user: { by: "user_id", of: "" },
  model: { by: "model", of: "AND tool = ''" },
  tool: { by: "tool", of: "AND tool <> ''" },
} as const satisfies Record<UsageGroup, { readonly by: string; readonly of: string }>;

const directions = { asc: "ASC", desc: "DESC" } as const;
const follows = { asc: ">", desc: "<" } as const;

export function createUsageRepo(shards: Shards): UsageRepo {
  return {
    sum: async (tenant, { groupBy, from, to, callerId }, page) => {
      const { by, of } = groups[groupBy];
      const args: SqlValue[] = [tenant, from, to, callerId ?? null, page.after ?? null, page.limit + 1];
      const sql = `SELECT ${by} AS part, SUM(calls) AS calls, SUM(prompt_tokens) AS prompt_tokens,
          SUM(completion_tokens) AS completion_tokens, SUM(cached_tokens) AS cached_tokens, SUM(micros) AS micros,
          SUM(context_tokens) AS context_tokens, SUM(context_micros) AS context_micros,
          SUM(estimated_calls) AS estimated_calls
        FROM usage_days
        WHERE tenant = ?1 AND day >= ?2 AND day < ?3 AND (?4 IS NULL OR caller_id = ?4) ${of}
          AND (?5 IS NULL OR ${by} ${follows[page.order]} ?5)
        GROUP BY part ORDER BY part ${directions[page.order]} LIMIT ?6`;
      const options = { readonly: true, long: { owner: tenant } };
      const [found] = await shards.databaseFor(tenant).batch([{ sql, args }], options);
      const sums = (found?.rows ?? []).map(toSum);
      return { data: sums.slice(0, page.limit), hasMore: sums.length > page.limit };
    },
  };
}

function toSum(row: StatementResult["rows"][number]): UsageSum {
  return {
    group: String(row["part"]),
    calls: Number(row["calls"]),
    promptTokens: Number(row["prompt_tokens"]),
    completionTokens: Number(row["completion_tokens"]),
    cachedTokens: Number(row["cached_tokens"]),
    micros: Number(row["micros"]),
    contextTokens: Number(row["context_tokens"]),
    contextMicros: Number(row["context_micros"]),
    estimatedCalls: Number(row["estimated_calls"]),
  };
}
