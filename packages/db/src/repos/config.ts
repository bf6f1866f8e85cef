/**
 * A tenant's configuration as one snapshot: one batch, so that version and content belong together. A row
 * that cannot be read is left out and reported; it must not take the tenant down.
 */
import { asc, eq } from "drizzle-orm";
import type { ConfigRepo } from "@toolyard/core/ports/tenants";
import type { UnreadablePart } from "@toolyard/core/tenant-config";
import type { SettingsCaps } from "@toolyard/core/tenants/settings";
import type { Shards } from "../database.ts";
import { budgets } from "../schema/budgets.ts";
import { providers } from "../schema/providers.ts";
import { sysAiPlugin } from "../schema/sys-ai-plugin.ts";
import { tenants } from "../schema/tenants.ts";
import { parseSettings } from "../settings.ts";
import { build, decodeFirst, statement } from "../sql.ts";
import { agentReader, selectAgents } from "./agents.ts";
import { budgetReader } from "./budgets.ts";
import { readFlowHeads, selectFlowHeads } from "./flow-heads.ts";
import { nodeReader, selectNodes } from "./node-configuration.ts";
import { selectCredentials, storedCredentialReader } from "./credentials.ts";
import { pluginReader } from "./plugins.ts";
import { operator, readPrices, selectPrices } from "./prices.ts";
import { providerReader } from "./providers.ts";
import { readAll, unreadableMessage, type BrokenRow, type OnBrokenRow } from "./rows.ts";
import { readTavernEntries, selectTavernEntries } from "./tavern.ts";
import { selectToolServices, toolServiceReader } from "./tool-services.ts";
import { readVariables, selectVariables } from "./variables.ts";

const kinds: Readonly<Record<string, UnreadablePart["kind"]>> = {
  agents: "agent",
  price_tables: "tool_price",
  tenants: "setting",
  tool_services: "tool_service",
};

function toPart(row: BrokenRow): readonly UnreadablePart[] {
  const kind = kinds[row.table];
  return kind === undefined ? [] : [{ kind, id: row.id, name: row.name ?? null, message: unreadableMessage(row) }];
}

export function createConfigRepo(shards: Shards, caps: SettingsCaps, onBrokenRow: OnBrokenRow): ConfigRepo {
  const plugins = pluginReader(onBrokenRow);
  const backEnds = providerReader(onBrokenRow);
  const credentials = storedCredentialReader(onBrokenRow);
  const limits = budgetReader(onBrokenRow);
  const nodes = nodeReader(onBrokenRow);
  return {
    load: async (tenant) => {
      const database = shards.databaseFor(tenant);
      // A tenant on a shard of its own costs a second trip, to the directory.
      const elsewhere =
        database === shards.directory ? undefined : shards.directory.batch([selectPrices()], { readonly: true });
      const [
        [
          owner,
          pluginRows,
          providerRows,
          credentialRows,
          budgetRows,
          priceRows,
          serviceRows,
          nodeRows,
          tavernRows,
          variableRows,
          flowRows,
          agentRows,
        ],
        operatorRows,
      ] = await Promise.all([
        database.batch(
          [
            statement(build.select().from(tenants).where(eq(tenants.id, tenant))),
            statement(
              build.select().from(sysAiPlugin).where(eq(sysAiPlugin.tenant, tenant)).orderBy(asc(sysAiPlugin.pluginId)),
            ),
            statement(
              build
                .select()
                .from(providers)
                .where(eq(providers.tenant, tenant))
                .orderBy(asc(providers.priority), asc(providers.id)),
            ),
            selectCredentials(tenant),
            statement(build.select().from(budgets).where(eq(budgets.tenant, tenant)).orderBy(asc(budgets.id))),
            selectPrices(tenant),
            selectToolServices(tenant),
            selectNodes(tenant),
            selectTavernEntries(tenant),
            selectVariables(tenant),
            selectFlowHeads(tenant),
            selectAgents(tenant),
          ],
          { readonly: true },
        ),
        elsewhere,
      ]);
      const row = decodeFirst(tenants, owner);
      if (row === undefined) return undefined;
      const broken: BrokenRow[] = [];
      const noteBroken: OnBrokenRow = (each) => {
        broken.push(each);
        onBrokenRow(each);
      };
      const config = {
        tenant,
        version: row.configVersion,
        settings: parseSettings(row.settings, caps, (key) =>
          noteBroken({ table: "tenants", tenant, id: key, reason: "is not a value that this setting takes" }),
        ),
        plugins: readAll(plugins, pluginRows),
        services: readAll(toolServiceReader(noteBroken), serviceRows),
        nodes: readAll(nodes, nodeRows),
        tavern: readTavernEntries(tavernRows, onBrokenRow),
        variables: readVariables(variableRows, onBrokenRow),
        flows: readFlowHeads(flowRows, onBrokenRow),
        agents: readAll(agentReader(noteBroken), agentRows),
        providers: readAll(backEnds, providerRows),
        credentials: readAll(credentials, credentialRows),
        budgets: readAll(limits, budgetRows),
        prices: {
          own: readPrices(priceRows, tenant, noteBroken),
          operator: readPrices(operatorRows?.[0] ?? priceRows, operator, onBrokenRow),
        },
        wrappedKey: row.wrappedKey,
      };
      return { ...config, unreadable: broken.flatMap(toPart) };
    },
  };
}
