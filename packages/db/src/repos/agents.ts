/** Agents of a tenant. Contract: `AgentRepo`. */
import { and, asc, eq, getTableName, ne, notExists, sql, type SQL } from "drizzle-orm";
import { alias } from "drizzle-orm/sqlite-core";
import type { AgentDefinition, AgentRecord, NewAgent } from "@toolyard/core/agents/agent";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { AgentRepo } from "@toolyard/core/ports/agents";
import { mostOf } from "@toolyard/core/ports/limits";
import { nowMs } from "../columns.ts";
import type { Shards, Statement } from "../database.ts";
import { agents } from "../schema/agents.ts";
import { build, statement } from "../sql.ts";
import { raiseConfigVersion, readFirst, readPage, selectPage, type OnBrokenRow, type Reader } from "./rows.ts";

/** Each is part of the tenant's snapshot. */
const mostAgents = mostOf.agents;

export function agentReader(onBrokenRow: OnBrokenRow): Reader<typeof agents, AgentRecord> {
  return {
    table: agents,
    tableName: getTableName(agents),
    key: agents.id,
    onBrokenRow,
    toRecord: ({ tenant: _tenant, definition, ...row }) => ({ ...definition, ...row }),
  };
}

/** All of a tenant, for its snapshot. */
export function selectAgents(tenant: string): Statement {
  return statement(build.select().from(agents).where(eq(agents.tenant, tenant)).orderBy(asc(agents.name)));
}

const insertAgent = `INSERT INTO agents (id, tenant, name, definition)
  SELECT ?1, ?2, ?3, ?4 WHERE (SELECT COUNT(*) FROM agents WHERE tenant = ?2) < ${mostAgents}
  ON CONFLICT DO NOTHING`;

export function createAgentRepo(shards: Shards, onBrokenRow: OnBrokenRow): AgentRepo {
  const reader = agentReader(onBrokenRow);
  return {
    create: async (tenant, id, agent) => {
      const [, , found, counted] = await shards
        .databaseFor(tenant)
        .batch(
          [
            { sql: insertAgent, args: [id, tenant, agent.name, JSON.stringify(definitionOf(agent))] },
            raiseConfigVersion(tenant),
            statement(build.select().from(agents).where(own(tenant, id))),
            { sql: "SELECT COUNT(*) AS agents FROM agents WHERE tenant = ?1", args: [tenant] },
          ],
          { repeatable: true },
        );
      const created = readFirst(reader, found);
      if (created !== undefined) return created;
      throw Number(counted?.rows[0]?.["agents"]) >= mostAgents ? tooMany() : nameTaken(agent.name);
    },

    update: async (tenant, id, agent) => {
      const other = alias(agents, "other");
      const namesake = build
        .select({ found: sql`1` })
        .from(other)
        .where(and(eq(other.tenant, tenant), eq(other.name, agent.name), ne(other.id, id)));
      const { expectedUpdatedAt: expected } = agent;
      const asRead = expected === undefined ? undefined : eq(agents.updatedAt, expected);
      const change = build
        .update(agents)
        // Each change has a moment of its own, by which the next one knows what it has read.
        .set({
          name: agent.name,
          definition: definitionOf(agent),
          updatedAt: sql`max(${nowMs}, ${agents.updatedAt} + 1)`,
        })
        .where(and(own(tenant, id), asRead, notExists(namesake)))
        .returning();
      const present = build.select({ updatedAt: agents.updatedAt }).from(agents).where(own(tenant, id));
      const [updated, , found] = await shards
        .databaseFor(tenant)
        .batch([statement(change), raiseConfigVersion(tenant), statement(present)], { repeatable: true });
      const record = readFirst(reader, updated);
      if (record !== undefined) return record;
      const now = found?.rows[0]?.["updated_at"];
      if (now === undefined || Number(now) !== (expected ?? Number(now))) return undefined;
      throw nameTaken(agent.name);
    },

    get: async (tenant, id) => {
      const [found] = await shards
        .databaseFor(tenant)
        .batch([statement(build.select().from(agents).where(own(tenant, id)))], { readonly: true });
      return readFirst(reader, found);
    },

    list: async (tenant, page) => {
      const [found] = await shards
        .databaseFor(tenant)
        .batch([selectPage(reader, eq(agents.tenant, tenant), page)], { readonly: true });
      return readPage(reader, found, page);
    },

    delete: async (tenant, id) => {
      const [deleted] = await shards
        .databaseFor(tenant)
        .batch([statement(build.delete(agents).where(own(tenant, id))), raiseConfigVersion(tenant)]);
      return (deleted?.changes ?? 0) > 0;
    },
  };
}

function definitionOf(agent: NewAgent): AgentDefinition {
  return {
    description: agent.description,
    model: agent.model,
    instructions: agent.instructions,
    tools: agent.tools,
    knowledge: agent.knowledge,
    handoffs: agent.handoffs,
    agents: agent.agents,
    limits: agent.limits,
    tool_protocol: agent.tool_protocol,
    parameters: agent.parameters,
    allow_client_tools: agent.allow_client_tools,
    enabled: agent.enabled,
  };
}

function own(tenant: string, id: string): SQL | undefined {
  return and(eq(agents.tenant, tenant), eq(agents.id, id));
}

function nameTaken(name: string): GatewayError {
  return new GatewayError("conflict", `There is an agent '${name}' already; take another name, or change that one.`, {
    param: "name",
  });
}

function tooMany(): GatewayError {
  return new GatewayError("conflict", `A tenant has at most ${mostAgents} agents; delete one first.`, {
    param: "name",
  });
}
