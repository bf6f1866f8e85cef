/** The models that a tenant may use, in OpenAI's shape (CHAT-16). */
import { agentModelOf } from "@toolyard/core/agents/agent";
import { createCredentialResolver } from "@toolyard/core/blind/credential-resolver";
import { discoverModels, listModels as knownModels, type ModelEntry } from "@toolyard/core/chat/providers/route";
import type { CallContext } from "@toolyard/core/context";
import type { CoreDeps } from "@toolyard/core/core-deps";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { TenantConfig } from "@toolyard/core/tenant-config";
import { newId } from "@toolyard/core/ids";
import * as z from "zod";
import { defineRoute, type IsolationDriver } from "../define-route.ts";
import { listSchema, toList } from "../list.ts";
import { idOf } from "./shared.ts";

/** A back end that takes longer to say what it offers is left out of the list. */
const discoveryMs = 5_000;

const modelSchema = z.strictObject({
  id: z.string(),
  object: z.literal("model"),
  created: z.int().meta({ description: "Always 0: back ends do not say." }),
  owned_by: z.string().meta({ description: "The provider that is asked first for it; 'toolyard' of an agent." }),
});

function viewModel({ id, ownedBy }: ModelEntry): z.output<typeof modelSchema> {
  return { id, object: "model", created: 0, owned_by: ownedBy };
}

/** Agents are models to whoever asks them. */
function agentModels({ agents }: TenantConfig): readonly ModelEntry[] {
  return agents.filter(({ enabled }) => enabled).map((agent) => ({ id: agentModelOf(agent), ownedBy: agentOwner }));
}

const agentOwner = "toolyard";

/** Configured models, and those that back ends which take every name say they have. */
function offeredModels(core: CoreDeps, context: CallContext): Promise<readonly ModelEntry[]> {
  const resolver = createCredentialResolver(core);
  const deps = {
    egress: core.egress,
    clock: core.clock,
    log: core.log,
    span: context.span,
    ...(core.defaultProvider === undefined ? {} : { defaultProvider: core.defaultProvider }),
    credential: async (name: string): Promise<string> => {
      const value = (await resolver.resolve(context, [name])).get(name);
      if (value === undefined) throw new GatewayError("credential_missing", `There is no credential '${name}'.`);
      return value;
    },
  };
  return discoverModels(deps, context.config, AbortSignal.timeout(discoveryMs));
}

async function arrangeModel(owner: IsolationDriver): Promise<string> {
  const model = `private/${newId("request")}`;
  await owner.send("post", "/v1/providers", {
    name: model,
    kind: "openai",
    base_url: "https://models.example.com/v1",
    models: { [model]: "m" },
  });
  return model;
}

export const listModels = defineRoute({
  method: "get",
  path: "/v1/models",
  summary: "List the models that this tenant may use",
  tags: ["models"],
  scope: "chat",
  responses: { 200: { description: "All models", schema: listSchema(modelSchema) } },
  isolation: { kind: "list", arrange: arrangeModel },
  async handler(c, { core, context }) {
    const data = [...agentModels(context.config), ...(await offeredModels(core, context))];
    return c.json(toList({ data, hasMore: false }, viewModel, idOf));
  },
});

export const getModel = defineRoute({
  method: "get",
  path: "/v1/models/{model+}",
  summary: "One model",
  tags: ["models"],
  scope: "chat",
  request: { params: z.strictObject({ model: z.string() }) },
  responses: { 200: { description: "The model", schema: modelSchema } },
  isolation: { kind: "object", arrange: async (owner) => ({ params: { model: await arrangeModel(owner) } }) },
  async handler(c, { core, context, config, params }) {
    const wanted = ({ id }: ModelEntry): boolean => id === params.model;
    const model =
      agentModels(config).find(wanted) ??
      knownModels(config, core.defaultProvider).find(wanted) ??
      (await offeredModels(core, context)).find(wanted);
    if (model === undefined) {
      throw new GatewayError("model_not_found", `The model '${params.model}' does not exist.`, { param: "model" });
    }
    return c.json(viewModel(model));
  },
});
