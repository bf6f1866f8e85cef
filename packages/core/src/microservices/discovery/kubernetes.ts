/** Endpoints that Kubernetes has for a Service, over all of its EndpointSlices. */
import * as z from "zod";
import { isJsonObject } from "../../json.ts";
import type { InvocationContext } from "../../tools/adapter.ts";
import { authorityOf, type Instance } from "../instance.ts";
import type { kubernetesSchema } from "./fields.ts";
import { queryOf, RegistryClient, withoutSlash, type Registry, type RegistryDeps } from "./registry.ts";

type Config = z.output<typeof kubernetesSchema>;

const conditionsSchema = z.looseObject({
  ready: z.boolean().nullish(),
  serving: z.boolean().nullish(),
  terminating: z.boolean().nullish(),
});
const sliceSchema = z.looseObject({
  addressType: z.string(),
  endpoints: z
    .array(z.looseObject({ addresses: z.array(z.string()), conditions: conditionsSchema.nullish() }))
    .nullish(),
  ports: z.array(z.looseObject({ name: z.string().nullish(), port: z.number().nullish() })).nullish(),
});
const listSchema = z.looseObject({ items: z.array(sliceSchema) });

type Slice = z.output<typeof sliceSchema>;

export function createKubernetes(config: Config, deps: RegistryDeps): Registry {
  const client = new RegistryClient(deps, `Kubernetes of '${config.service}'`);
  return {
    async instances(context: InvocationContext): Promise<readonly Instance[]> {
      const query = queryOf({ labelSelector: `kubernetes.io/service-name=${config.service}` });
      const path = `/apis/discovery.k8s.io/v1/namespaces/${encodeURIComponent(config.namespace)}/endpointslices`;
      const token = await client.headerSecret(config.token, context);
      const answer = await client.ask(
        {
          url: `${withoutSlash(config.url)}${path}?${query}`,
          headers: [["authorization", `Bearer ${token}`]],
          tls: config.tls,
        },
        context,
      );
      if (answer.status !== 200) {
        const reason = isJsonObject(answer.json) ? answer.json["message"] : undefined;
        throw client.refusal(answer, typeof reason === "string" ? reason : "");
      }
      const parsed = listSchema.safeParse(answer.json);
      if (!parsed.success) throw client.failure("answered with what is no list of EndpointSlices");
      return instancesIn(parsed.data.items, config.port);
    },
  };
}

/** Those that are ready, or else those that still serve while they end. */
function instancesIn(slices: readonly Slice[], port: Config["port"]): readonly Instance[] {
  const ready = new Map<string, Instance>();
  const ending = new Map<string, Instance>();
  for (const slice of slices) {
    const number = portIn(slice, port);
    if (slice.addressType === "FQDN" || number === undefined) continue;
    for (const { addresses, conditions } of slice.endpoints ?? []) {
      const [host] = addresses;
      if (host === undefined) continue;
      const instance = { host, port: number, weight: 1 };
      if (conditions?.ready ?? true) ready.set(authorityOf(instance), instance);
      else if ((conditions?.serving ?? true) && conditions?.terminating === true)
        ending.set(authorityOf(instance), instance);
    }
  }
  return [...(ready.size > 0 ? ready : ending).values()];
}

function portIn({ ports }: Slice, wanted: Config["port"]): number | undefined {
  const found = (ports ?? []).find(({ name, port }) => wanted === undefined || name === wanted || port === wanted);
  return found?.port ?? undefined;
}
