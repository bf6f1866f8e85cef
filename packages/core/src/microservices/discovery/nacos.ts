/**
 * Instances that Nacos knows. Which API there is depends on the server's version: the newest is asked first,
 * and the one that answered is kept. A token is asked for where a user name is given, and once more where
 * the server does not take it any longer.
 */
import * as z from "zod";
import { GatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, type JsonValue } from "../../json.ts";
import type { InvocationContext } from "../../tools/tool-call.ts";
import type { Instance } from "../instance.ts";
import type { nacosSchema } from "./fields.ts";
import {
  after,
  queryOf,
  RegistryClient,
  saidIn,
  withoutSlash,
  type Registry,
  type RegistryAnswer,
  type RegistryDeps,
} from "./registry.ts";

type Config = z.output<typeof nacosSchema>;

interface Dialect {
  readonly path: string;
  /** Name of the parameter for clusters. */
  readonly clusters: string;
  /** Where the instances stand in the answer. */
  readonly instancesIn: (json: JsonValue | undefined) => JsonValue | undefined;
}

const hostsOf = (info: JsonValue | undefined): JsonValue | undefined =>
  isJsonObject(info) ? info["hosts"] : undefined;
const dataOf = (json: JsonValue | undefined): JsonValue | undefined => (isJsonObject(json) ? json["data"] : undefined);

/** Newest first. */
const dialects: readonly Dialect[] = [
  { path: "/v3/client/ns/instance/list", clusters: "clusterName", instancesIn: dataOf },
  { path: "/v2/ns/instance/list", clusters: "clusterName", instancesIn: (json) => hostsOf(dataOf(json)) },
  { path: "/v1/ns/instance/list", clusters: "clusters", instancesIn: hostsOf },
];
const loginPaths = ["/v3/auth/user/login", "/v1/auth/login"] as const;

/** Codes in the body of an answer. */
const deprecated = 40_000;
const noSuchService: ReadonlySet<number> = new Set([20_004, 21_008]);

const instancesSchema = z.array(
  z.looseObject({
    ip: z.string().min(1),
    port: z.number(),
    weight: z.number().nullish(),
    healthy: z.boolean().nullish(),
    enabled: z.boolean().nullish(),
  }),
);
const loginSchema = z.looseObject({ accessToken: z.string().min(1), tokenTtl: z.number().nullish() });

export function createNacos(config: Config, deps: RegistryDeps): Registry {
  return new Nacos(config, deps);
}

class Nacos implements Registry {
  readonly #config: Config;
  readonly #client: RegistryClient;
  #dialect: Dialect | undefined;
  #token: { readonly value: string; readonly until: number } | undefined;

  constructor(config: Config, deps: RegistryDeps) {
    this.#config = config;
    this.#client = new RegistryClient(deps, `Nacos of '${config.service}'`);
  }

  async instances(context: InvocationContext): Promise<readonly Instance[]> {
    const { answer, dialect } = await this.#list(context);
    const code = codeOf(answer);
    if (code !== undefined && noSuchService.has(code)) return [];
    if (answer.status !== 200 || (code ?? 0) !== 0) throw this.#client.refusal(answer);
    const parsed = instancesSchema.safeParse(dialect.instancesIn(answer.json));
    if (!parsed.success) throw this.#client.failure("answered with what is no list of instances");
    return parsed.data
      .filter(({ healthy, enabled, weight }) => healthy !== false && enabled !== false && (weight ?? 1) > 0)
      .map(({ ip: host, port, weight }) => ({ host, port, weight: weight ?? 1 }));
  }

  async #list(context: InvocationContext): Promise<{ readonly answer: RegistryAnswer; readonly dialect: Dialect }> {
    const known =
      this.#dialect === undefined ? dialects : [this.#dialect, ...dialects.filter((each) => each !== this.#dialect)];
    let last: { readonly answer: RegistryAnswer; readonly dialect: Dialect } | undefined;
    for (const dialect of known) {
      const answer = await this.#askWithToken(dialect, context);
      last = { answer, dialect };
      if (answer.status === 404 || answer.status === 410 || codeOf(answer) === deprecated) {
        if (!noSuchService.has(codeOf(answer) ?? 0)) continue;
      }
      this.#dialect = dialect;
      return last;
    }
    if (last === undefined) throw this.#client.failure("was not asked");
    return last;
  }

  async #askWithToken(dialect: Dialect, context: InvocationContext): Promise<RegistryAnswer> {
    const kept = this.#token;
    const answer = await this.#ask(dialect, await this.#accessToken(context), context);
    const isRefused = answer.status === 401 || answer.status === 403;
    if (!isRefused || kept === undefined || kept !== this.#token) return answer;
    this.#token = undefined;
    return this.#ask(dialect, await this.#accessToken(context), context);
  }

  #ask(dialect: Dialect, accessToken: string | undefined, context: InvocationContext): Promise<RegistryAnswer> {
    const { service: serviceName, group: groupName, namespace: namespaceId, cluster, tls } = this.#config;
    const query = queryOf({ serviceName, groupName, namespaceId, [dialect.clusters]: cluster, accessToken });
    return this.#client.ask({ url: `${this.#base()}${dialect.path}?${query}`, tls }, context);
  }

  async #accessToken(context: InvocationContext): Promise<string | undefined> {
    const { username, password, tls } = this.#config;
    if (username === undefined || password === undefined) return undefined;
    if (this.#token !== undefined && this.#token.until > Date.now()) {
      context.redactor.add(this.#token.value);
      return this.#token.value;
    }
    const form = queryOf({ username, password: await this.#client.secret(password, context) });
    for (const path of loginPaths) {
      const answer = await this.#client.ask({ url: this.#base() + path, form, tls }, context);
      if (answer.status === 404 || answer.status === 410) continue;
      const parsed = loginSchema.safeParse(answer.json);
      const wrapped = loginSchema.safeParse(dataOf(answer.json));
      const login = parsed.success ? parsed.data : wrapped.data;
      if (answer.status !== 200 || login === undefined) throw this.#loginFailure(answer);
      context.redactor.add(login.accessToken);
      // A tenth earlier than it ends.
      this.#token = { value: login.accessToken, until: Date.now() + (login.tokenTtl ?? 18_000) * 900 };
      return login.accessToken;
    }
    throw new GatewayError(
      "tool_unreachable",
      `Nacos of '${this.#config.service}' has no login at this address; correct 'config.discovery.url', or leave out 'config.discovery.username'.`,
      {
        param: "config.discovery",
      },
    );
  }

  #loginFailure(answer: RegistryAnswer): GatewayError {
    const { status } = answer;
    const said = after(saidIn(answer));
    if (status < 500) return this.#client.refused(status, `the login failed${said}`);
    const ambiguous = status === 500 ? " (which it says of users that it does not know, and while it starts)" : "";
    return this.#client.failure(`answered the login with status ${status}${said}${ambiguous}`);
  }

  #base(): string {
    const base = withoutSlash(this.#config.url);
    return new URL(base).pathname === "/" ? `${base}/nacos` : base;
  }
}

function codeOf({ json }: RegistryAnswer): number | undefined {
  const code = isJsonObject(json) ? json["code"] : undefined;
  return typeof code === "number" ? code : undefined;
}
