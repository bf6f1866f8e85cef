/** Endpoints that Kubernetes has for a Service, over all of its EndpointSlices. */
import * as z from "zod";
import type { InvocationContext } from "../../tools/tool-call.ts";
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
  ports: z
    .array(z.looseObject({ name: z.string().nullish(), port: z.number().nullish(), protocol: z.string().nullish() }))
    .nullish(),
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
      if (answer.status !== 200) throw client.refusal(answer);
      const parsed = listSchema.safeParse(answer.json);
      if (!parsed.success) throw client.failure("answered with what is no list of EndpointSlices");
      const slices = parsed.data.items.filter(({ endpoints }) => (endpoints ?? []).length > 0);
      if (slices.length > 0 && slices.every((slice) => portIn(slice, config.port) === undefined))
        throw client.failure(`has ${portsIn(slices)} of its endpoints, and not the one that 'port' asks for`);
      return instancesIn(slices, config.port);
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

function portIn(slice: Slice, wanted: Config["port"]): number | undefined {
  const found = tcpIn(slice).find(({ name, port }) => wanted === undefined || name === wanted || port === wanted);
  return found?.port ?? undefined;
}

function tcpIn({ ports }: Slice): NonNullable<Slice["ports"]> {
  return (ports ?? []).filter(({ protocol }) => (protocol ?? "TCP") === "TCP");
}

/** The ports that there are, for people: those of the endpoints themselves, which a Service may have under other numbers. */
function portsIn(slices: readonly Slice[]): string {
  const named = slices.flatMap(tcpIn).map(({ name, port }) => (name ? `${name} (${port})` : String(port)));
  const listed = [...new Set(named)].slice(0, 10);
  return listed.length === 0 ? "no TCP port" : `TCP port ${listed.join(", ")}`;
}
