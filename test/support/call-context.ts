/** What a call is made in, for unit tests: a tenant with default settings and a key as the caller. */
import type { Caller } from "@toolyard/core/callers/caller";
import type { CallContext } from "@toolyard/core/context";
import { Redactor } from "@toolyard/core/secrets/redactor";
import { tenantSettingsSchema } from "@toolyard/core/tenants/settings";

export interface ContextOptions {
  readonly tenant?: string;
  readonly caller?: Partial<Caller>;
  readonly settings?: Readonly<Record<string, unknown>>;
  readonly sessionId?: string;
  /** Values that the redactor knows. */
  readonly secrets?: readonly string[];
}

export function callContext(options: ContextOptions = {}): CallContext {
  const { tenant = "ten_a", caller, settings = {}, sessionId, secrets = [] } = options;
  const redactor = new Redactor();
  for (const secret of secrets) redactor.add(secret);
  return {
    tenant,
    caller: { kind: "key", id: "key_1", role: "member", scopes: ["chat", "tools"], tools: null, ...caller },
    config: {
      tenant,
      version: 1,
      settings: tenantSettingsSchema.parse(settings),
      plugins: [],
      services: [],
      nodes: [],
      tavern: [],
      flows: [],
      variables: [],
      agents: [],
      providers: [],
      credentials: [],
      budgets: [],
      prices: { own: [], operator: [] },
      unreadable: [],
      wrappedKey: "",
    },
    requestId: "req_1",
    traceId: "0af7651916cd43dd8448eb211c80319c",
    ...(sessionId === undefined ? {} : { sessionId }),
    redactor,
  };
}
