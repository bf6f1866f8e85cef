/** The kinds of model back ends. A new one is a file beside this and a line here. */
import type { Egress } from "../../ports/egress.ts";
import { createOpenAiProvider } from "./openai.ts";
import type { ChatProvider } from "./provider.ts";
import { createScriptedProvider } from "./scripted.ts";

export interface ProviderDeps {
  readonly egress: Egress;
}

const factories = {
  openai: createOpenAiProvider,
  scripted: createScriptedProvider,
} satisfies Record<string, (deps: ProviderDeps) => ChatProvider>;

export type ProviderKind = keyof typeof factories;

export const providerKinds: readonly ProviderKind[] = Object.keys(factories).filter(isProviderKind);

export function isProviderKind(kind: string): kind is ProviderKind {
  return Object.hasOwn(factories, kind);
}

/** One of each kind for every door: they remember what their back ends refused. */
const made = new WeakMap<Egress, Map<ProviderKind, ChatProvider>>();

export function providerOf(kind: ProviderKind, deps: ProviderDeps): ChatProvider {
  let providers = made.get(deps.egress);
  if (providers === undefined) made.set(deps.egress, (providers = new Map<ProviderKind, ChatProvider>()));
  let provider = providers.get(kind);
  if (provider === undefined) providers.set(kind, (provider = factories[kind](deps)));
  return provider;
}
