/**
 * A tenant's configuration as one immutable snapshot, loaded once per `version`. `admit` returns the
 * current version with every request, so a snapshot is never stale and never needs a lifetime.
 */
import type { AgentRecord } from "./agents/agent.ts";
import type { Budget } from "./budgets/budget.ts";
import type { PriceTables } from "./budgets/price.ts";
import type { StoredCredential } from "./secrets/credential.ts";
import type { PluginRecord } from "./blind/plugin.ts";
import type { ProviderRecord } from "./chat/providers/provider.ts";
import type { RegisteredNode } from "./nodes/node.ts";
import type { FlowHead } from "./ports/flows.ts";
import type { UnreadableItem } from "./ports/page.ts";
import type { TavernEntry } from "./ports/tavern.ts";
import type { ToolService } from "./services/service.ts";
import type { VariableEntry } from "./vcp/placeholders/variable.ts";
import type { TenantSettings } from "./tenants/settings.ts";

export interface TenantConfig {
  readonly tenant: string;
  readonly version: number;
  readonly settings: TenantSettings;
  readonly plugins: readonly PluginRecord[];
  /** Enabled and disabled alike. */
  readonly services: readonly ToolService[];
  /** By name; those that are away for a short time, too. */
  readonly nodes: readonly RegisteredNode[];
  /** Presets, world books and characters, without their contents. */
  readonly tavern: readonly TavernEntry[];
  /** What placeholders stand for, in order of definition; large contents are read when they are used. */
  readonly variables: readonly VariableEntry[];
  /** That have been published, disabled ones too; definitions are read when they are run. */
  readonly flows: readonly FlowHead[];
  /** By name, disabled ones too. */
  readonly agents: readonly AgentRecord[];
  /** In the tenant's order of preference. */
  readonly providers: readonly ProviderRecord[];
  /** Sealed values, so that a call needs no round trip for them; opened only at the moment of use. */
  readonly credentials: readonly StoredCredential[];
  /** Disabled ones too. */
  readonly budgets: readonly Budget[];
  readonly prices: PriceTables;
  /** Of that which can refer to other parts: what is stored, and left out above. */
  readonly unreadable: readonly UnreadablePart[];
  /** The tenant's data key as stored, for the sealer. */
  readonly wrappedKey: string;
}

export interface UnreadablePart extends Pick<UnreadableItem, "id" | "message"> {
  readonly kind: "agent" | "setting" | "tool_price" | "tool_service";
  readonly name: string | null;
}
