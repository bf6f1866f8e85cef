/**
 * Nodes as a tenant's configuration has them. Apart from the rest of their repository, which most functions never
 * need, while every one of them reads configurations.
 */
import { serverIdOf, type RegisteredNode } from "@toolyard/core/nodes/node";
import type { Statement } from "../database.ts";
import { nodes } from "../schema/nodes.ts";
import type { OnBrokenRow, Reader } from "./rows.ts";

export function nodeReader(onBrokenRow: OnBrokenRow): Reader<typeof nodes, RegisteredNode> {
  return {
    table: nodes,
    tableName: "nodes",
    key: nodes.name,
    onBrokenRow,
    toRecord: ({ name, tools, instance }) => {
      const serverId = serverIdOf(instance);
      return { name, tools, ...(serverId === undefined ? {} : { serverId }) };
    },
  };
}

/** All of a tenant, for its snapshot. */
export function selectNodes(tenant: string): Statement {
  return { sql: "SELECT * FROM nodes WHERE tenant = ?1 ORDER BY name", args: [tenant] };
}
