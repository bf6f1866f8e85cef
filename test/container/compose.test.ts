/** compose.yaml, as far as it can be looked at without an engine: does what it says fit together? */
import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { beforeAll, expect, test } from "vitest";
import { parse } from "yaml";
import { requireKeys } from "../../functions/compose.ts";
import { readEnvironment, settingNames } from "../../functions/env.ts";

const root = join(import.meta.dirname, "../..");
const operator: Readonly<Record<string, string>> = {
  DOMAIN: "tools.example.com",
  S3_SECRET_KEY: "s3-secret",
  TOOLYARD_ADMIN_KEY: "an-operator-key-of-some-length",
  TOOLYARD_MASTER_KEY: "ab".repeat(32),
};

interface Service {
  readonly image?: string;
  readonly environment?: Readonly<Record<string, string>>;
  readonly networks?: readonly string[];
  readonly volumes?: readonly string[];
  readonly ports?: readonly string[];
  readonly depends_on?: readonly string[] | Readonly<Record<string, unknown>>;
  readonly configs?: readonly { readonly source: string }[];
  readonly stop_grace_period?: string;
  readonly security_opt?: readonly string[];
  readonly deploy?: { readonly replicas: number };
}

interface Compose {
  readonly services: Readonly<Record<string, Service>>;
  readonly configs: Readonly<Record<string, { readonly content: string }>>;
  readonly volumes: Readonly<Record<string, unknown>>;
  readonly networks: Readonly<Record<string, { readonly internal?: boolean } | null>>;
}

const innermost = /\$\{(\w+)(?:(:?[-?])([^{}]*))?\}/g;

/** `${NAME:-default}`, `${NAME-default}` and `${NAME:?message}`, as compose replaces them, one within another too. */
function interpolate(text: string, from: Readonly<Record<string, string>>): string {
  const replaced = text.replaceAll(innermost, (_, name: string, kind?: string, word?: string) => {
    const value = from[name] ?? "";
    if (value === "" && kind === ":?") throw new Error(`${name}: ${word ?? ""}`);
    const isSet = kind === "-" ? from[name] !== undefined : value !== "";
    return isSet ? value : (word ?? "");
  });
  return replaced === text ? text : interpolate(replaced, from);
}

/** Values are replaced once they have been read, so an empty one stays a text. */
function interpolated(value: unknown, from: Readonly<Record<string, string>>): unknown {
  if (typeof value === "string") return interpolate(value, from);
  if (Array.isArray(value)) return value.map((one) => interpolated(one, from));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, interpolated(one, from)]));
}

let text: string;
let compose: Compose;

beforeAll(async () => {
  text = await readFile(join(root, "compose.yaml"), "utf8");
  compose = interpolated(parse(text), operator) as Compose;
});

test("gives every gateway settings that it takes, and all that several need in common", () => {
  const { environment = {}, deploy } = compose.services["gateway"] ?? {};
  const settings = readEnvironment(environment);
  expect(requireKeys(settings).adminKey).toBe(operator["TOOLYARD_ADMIN_KEY"]);
  expect(settings.databaseUrl).toBe("http://database:8080");
  expect(settings.publicUrl).toBe("https://tools.example.com");
  expect(settings.egressAllow).toEqual([]);
  expect(deploy?.replicas).toBeGreaterThan(1);
});

test("hands on to every gateway what stands in .env, whichever setting it is", () => {
  // What is the image's, or the engine's.
  const ofTheContainer = ["PATH", "HOST", "PORT", "TOOLYARD_DATA_DIR"];
  const names = settingNames.filter((name) => !ofTheContainer.includes(name) && !name.startsWith("AWS_"));
  expect(names.length).toBeGreaterThan(30);
  const given = Object.fromEntries(names.map((name) => [name, `the value of ${name}`]));
  const { services } = interpolated(parse(text), { ...operator, ...given }) as Compose;
  expect(services["gateway"]?.environment).toMatchObject(given);
});

test("takes a bucket elsewhere instead of its own", () => {
  const bucket = { S3_ENDPOINT: "", S3_REGION: "eu-west-1", S3_ACCESS_KEY: "AKIA", BLOBS_URL: "s3://acme" };
  const { services } = interpolated(parse(text), { ...operator, ...bucket }) as Compose;
  const { environment = {} } = services["gateway"] ?? {};
  expect(environment).toMatchObject({ AWS_REGION: "eu-west-1", AWS_ACCESS_KEY_ID: "AKIA" });
  expect(readEnvironment(environment)).toMatchObject({ blobsUrl: "s3://acme", s3Endpoint: undefined, unknown: [] });
});

test("refuses to start without keys, and writes none down", () => {
  for (const name of ["S3_SECRET_KEY", "TOOLYARD_ADMIN_KEY", "TOOLYARD_MASTER_KEY"]) {
    expect(() => interpolate(text, { ...operator, [name]: "" })).toThrow(name);
  }
});

test("names only services, networks, volumes and configurations that are there", async () => {
  for (const service of Object.values(compose.services)) {
    const depends = service.depends_on ?? [];
    const needed = Array.isArray(depends) ? depends : Object.keys(depends);
    for (const other of needed) expect(Object.keys(compose.services)).toContain(other);
    for (const network of service.networks ?? []) expect(Object.keys(compose.networks)).toContain(network);
    for (const { source } of service.configs ?? []) expect(Object.keys(compose.configs)).toContain(source);
    for (const volume of service.volumes ?? []) {
      const [from = ""] = volume.split(":");
      const isThere = from.startsWith("./")
        ? (await stat(join(root, from))).isFile()
        : Object.keys(compose.volumes).includes(from);
      expect(isThere, volume).toBe(true);
    }
    for (const host of Object.values(service.environment ?? {}).flatMap(hostOf)) {
      expect([...Object.keys(compose.services), operator["DOMAIN"]]).toContain(host);
    }
  }
});

function hostOf(value: string): readonly string[] {
  return /^https?:\/\//.test(value) ? [new URL(value).hostname] : [];
}

test("opens nothing but the proxy, and pins every image", () => {
  for (const [name, { ports, image, networks = [] }] of Object.entries(compose.services)) {
    expect(ports === undefined || name === "proxy", name).toBe(true);
    expect(image === "toolyard" || /:v?\d+\.\d+/.test(image ?? ""), name).toBe(true);
    expect(networks, name).toContain("inside");
  }
  expect(compose.networks["inside"]?.internal).toBe(true);
  for (const name of ["database", "blobs"]) expect(compose.services[name]?.networks).toEqual(["inside"]);
});

test("lets bubblewrap make its boxes, and refuses the kernel's rarely used doors", async () => {
  const options = compose.services["gateway"]?.security_opt ?? [];
  expect(options).toEqual(expect.arrayContaining(["no-new-privileges:true", "systempaths=unconfined"]));
  const profile = options.find((option) => option.startsWith("seccomp="))?.slice("seccomp=".length) ?? "";
  const { defaultAction, syscalls } = JSON.parse(await readFile(join(root, profile), "utf8")) as {
    readonly defaultAction: string;
    readonly syscalls: readonly { readonly names: readonly string[]; readonly action: string }[];
  };
  expect(defaultAction).toBe("SCMP_ACT_ALLOW");
  expect(syscalls.map(({ action }) => action)).toEqual(["SCMP_ACT_ERRNO"]);
  const refused = syscalls.flatMap(({ names }) => names);
  for (const needed of ["clone", "unshare", "mount", "umount2", "pivot_root", "seccomp", "prctl"]) {
    expect(refused).not.toContain(needed);
  }
  for (const door of ["bpf", "keyctl", "perf_event_open", "ptrace", "init_module", "kexec_load", "io_uring_setup"]) {
    expect(refused).toContain(door);
  }
});

test("lets a gateway drain before it is killed", () => {
  expect(compose.services["gateway"]?.stop_grace_period).toBe("30s");
});

test("gives the blob store the credentials that the gateways have", () => {
  const { identities } = JSON.parse(compose.configs["s3"]?.content ?? "") as {
    readonly identities: readonly { readonly credentials: readonly object[] }[];
  };
  const { environment = {} } = compose.services["gateway"] ?? {};
  expect(identities[0]?.credentials).toEqual([
    { accessKey: environment["AWS_ACCESS_KEY_ID"], secretKey: environment["AWS_SECRET_ACCESS_KEY"] },
  ]);
});

test("has a proxy that passes streams on as they come", async () => {
  const caddyfile = await readFile(join(root, "containers/Caddyfile"), "utf8");
  expect(caddyfile).toContain("flush_interval -1");
  expect(caddyfile).toContain("name {$GATEWAY_HOST:gateway}");
});
