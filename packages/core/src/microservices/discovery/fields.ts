/** Registries that know where a service is (tool management specification, "服务发现"; SVC-3). */
import * as z from "zod";
import { httpUrlField, secretField } from "../../services/config-fields.ts";
import { tlsField } from "../../services/tls.ts";

const name = (description: string): z.ZodString =>
  z
    .string()
    .min(1)
    .max(512)
    // oxlint-disable-next-line no-control-regex
    .regex(/^[^\u0000-\u0020\u007f/?#%]+$/, "must have no spaces, slashes, '?', '#' and '%'")
    .meta({ description });

/** Goes into a path and a selector of labels, where more than a name would mean more. */
const kubernetesName = (description: string): z.ZodString =>
  z
    .string()
    .regex(
      /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/,
      "must be a name of Kubernetes: up to 63 lower-case letters, digits and '-'",
    )
    .meta({ description });

const common = {
  refresh_ms: z
    .int()
    .min(500)
    .max(3_600_000)
    .default(10_000)
    .meta({ description: "Milliseconds after which the registry is asked again." }),
  keep_ms: z
    .int()
    .min(0)
    .max(86_400_000)
    .default(600_000)
    .meta({ description: "Milliseconds for which the last list is used while the registry has none to give." }),
  tls: tlsField.optional(),
};

export const consulSchema = z.strictObject({
  type: z.literal("consul"),
  url: httpUrlField("Address of the agent or server.").meta({ example: "http://consul.example.com:8500" }),
  service: name("Name of the service."),
  datacenter: name("Data centre; absent: the agent's own.").optional(),
  tag: name("Only instances with this tag.").optional(),
  namespace: name("Namespace (Consul Enterprise).").optional(),
  partition: name("Admin partition (Consul Enterprise).").optional(),
  token: secretField("ACL token that may read the service and the nodes that it is on.").optional(),
  ...common,
});

export const nacosSchema = z
  .strictObject({
    type: z.literal("nacos"),
    url: httpUrlField("Address of the server; without a path, /nacos is taken.").meta({
      example: "http://nacos.example.com:8848",
    }),
    service: name("Name of the service."),
    group: name("Group.").default("DEFAULT_GROUP"),
    namespace: name("Id of the namespace; absent: public.").optional(),
    cluster: name("Only instances of this cluster.").optional(),
    username: z.string().min(1).max(256).optional().meta({ description: "User name, where the server asks for one." }),
    password: secretField("Password.").optional(),
    ...common,
  })
  .refine(({ username, password }) => (username === undefined) === (password === undefined), {
    error: "needs 'username' and 'password' together",
    path: ["username"],
  });

export const kubernetesSchema = z.strictObject({
  type: z.literal("kubernetes"),
  url: httpUrlField("Address of the API server.").meta({ example: "https://kubernetes.default.svc" }),
  service: kubernetesName("Name of the Service object."),
  namespace: kubernetesName("Namespace.").default("default"),
  port: z
    .union([name("Name."), z.int().min(1).max(65_535)])
    .optional()
    .meta({ description: "Name or number of the endpoints' port, not of the Service's; absent: the first of TCP." }),
  token: secretField("Token of a service account that may list EndpointSlices."),
  ...common,
});

export const discoveryField = z
  .discriminatedUnion("type", [consulSchema, nacosSchema, kubernetesSchema])
  .meta({ description: "The registry that knows its instances: `consul`, `nacos` or `kubernetes`." });
export type Discovery = z.output<typeof discoveryField>;

/** As messages name them. */
export const registryTitles = {
  consul: "Consul",
  nacos: "Nacos",
  kubernetes: "Kubernetes",
} as const satisfies Readonly<Record<Discovery["type"], string>>;
