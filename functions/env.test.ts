import { describe, expect, test } from "vitest";
import { EnvironmentError, readBoxEnvironment, readEnvironment } from "./env.ts";

function problemsOf(source: Record<string, string>): readonly string[] {
  try {
    readEnvironment(source);
  } catch (error) {
    if (error instanceof EnvironmentError) return error.problems;
  }
  return [];
}

describe("settings", () => {
  test("are all optional on a laptop", () => {
    expect(readEnvironment({})).toEqual({
      port: 8787,
      host: "127.0.0.1",
      dataDir: ".toolyard",
      databaseUrl: undefined,
      databaseAuthToken: undefined,
      blobsUrl: undefined,
      queues: undefined,
      adminKey: undefined,
      masterKey: undefined,
      previousMasterKeys: [],
      openaiBaseUrl: undefined,
      openaiApiKey: undefined,
      defaultModel: undefined,
      egressAllow: undefined,
      pluginDir: undefined,
      vcpKeyInPath: false,
      mcpOrigins: [],
      mcpCommands: undefined,
      path: "/usr/local/bin:/usr/bin:/bin",
      pluginBoxFunction: undefined,
      codeBoxFunction: undefined,
      pushUrl: undefined,
      logLevel: "info",
      publicUrl: undefined,
      securityContact: undefined,
      awsEndpoints: [],
      s3Endpoint: undefined,
      traces: undefined,
      unknown: [],
      lambda: undefined,
    });
  });

  test("left empty count as not set, except the list that closes the door", () => {
    const names = ["PORT", "DATABASE_URL", "TOOLYARD_ADMIN_KEY", "TOOLYARD_LOG_LEVEL", "OPENAI_BASE_URL", "QUEUE_URL"];
    const environment = readEnvironment({
      ...Object.fromEntries(names.map((name) => [name, ""])),
      TOOLYARD_EGRESS_ALLOW: "",
    });
    expect(environment).toEqual({ ...readEnvironment({}), egressAllow: [] });
  });

  test("are taken over in the form the rest uses", () => {
    expect(
      readEnvironment({
        PORT: "0",
        TOOLYARD_EGRESS_ALLOW: "10.0.0.0/8, 127.0.0.0/8 ::1/128",
        OPENAI_BASE_URL: "http://127.0.0.1:4000/v1/",
        TOOLYARD_PUBLIC_URL: "https://tools.example.com/base/",
        TOOLYARD_SECURITY_CONTACT: "mailto:security@example.com",
        AWS_LAMBDA_FUNCTION_NAME: "chat",
        AWS_LAMBDA_RUNTIME_API: "127.0.0.1:9001",
      }),
    ).toMatchObject({
      port: 0,
      egressAllow: ["10.0.0.0/8", "127.0.0.0/8", "::1/128"],
      openaiBaseUrl: "http://127.0.0.1:4000/v1",
      publicUrl: "https://tools.example.com/base",
      securityContact: "mailto:security@example.com",
      lambda: { runtimeApi: "127.0.0.1:9001" },
    });
  });

  test.each([
    ["PORT", "http"],
    ["PORT", "65536"],
    ["PORT", "-1"],
    ["PORT", "80.5"],
    ["DATABASE_URL", "postgres://localhost/x"],
    ["BLOBS_URL", "ftp://x"],
    ["BLOBS_URL", "s3:///prefix"],
    ["BLOBS_URL", "s3://Not A Bucket/x"],
    ["BLOBS_URL", "s3://bucket/x?style=path"],
    ["QUEUE_URL", "arn:aws:sqs:eu-west-1:1:short"],
    ["QUEUE_LONG_URL", "long"],
    ["TOOLYARD_MASTER_KEY", "kms: alias/x"],
    ["TOOLYARD_MASTER_KEY", "kms:alias/with space"],
    ["TOOLYARD_PREVIOUS_MASTER_KEYS", "kms:arn:aws:s3:::bucket"],
    ["PUSH_URL", "wss://abc.execute-api.eu-west-1.amazonaws.com/live"],
    ["PLUGIN_BOX_FUNCTION", "not one word"],
    ["TOOLYARD_ADMIN_KEY", "short"],
    ["TOOLYARD_ADMIN_KEY", "with spaces in the middle of it"],
    ["OPENAI_BASE_URL", "api.openai.com/v1"],
    ["OPENAI_BASE_URL", "https://user:hunter2@host.example/v1"],
    ["OPENAI_API_KEY", "sk-with\nnewline"],
    ["TOOLYARD_LOG_LEVEL", "loud"],
    ["TOOLYARD_SETTINGS_CAPS", "rounds=5"],
    ["TOOLYARD_SETTINGS_CAPS", '{"round": 5}'],
    ["TOOLYARD_SETTINGS_CAPS", '{"rounds": "many"}'],
    ["TOOLYARD_SETTINGS_CAPS", '{"default_model": 5}'],
    ["TOOLYARD_MCP_COMMANDS", "memory=mcp-server-memory"],
    ["TOOLYARD_MCP_COMMANDS", '{"memory": {"command": []}}'],
    ["TOOLYARD_MCP_COMMANDS", '{"memory": {"command": ["x"], "env": ["A=B"]}}'],
    ["TOOLYARD_MCP_ORIGINS", "https://shop.example.net/page"],
    ["TOOLYARD_MCP_ORIGINS", "shop.example.net"],
    ["TOOLYARD_PUBLIC_URL", "https://host.example/?x=1"],
    ["TOOLYARD_PUBLIC_URL", "https://host.example/my tools"],
    ["TOOLYARD_WS_URL", "https://host.example/ws"],
    ["BLOBS_URL", "file://elsewhere/blobs"],
    ["BLOBS_URL", "file:/blobs/%zz"],
    ["AWS_ENDPOINT_URL_S3", "blobs:8333"],
    ["TOOLYARD_WS_URL", "wss://"],
    ["TOOLYARD_SECURITY_CONTACT", "security@example.com"],
  ])("%s=%j is refused by name, without its value", (name, value) => {
    const problems = problemsOf({ [name]: value });
    expect(problems).toHaveLength(1);
    expect(problems[0]).toMatch(new RegExp(`^${name}: must `));
    expect(problems[0]).not.toContain(value);
  });

  test.each(["file:", "file://"])(
    "BLOBS_URL=%s names no directory, and does not mean where the process was started",
    (url) => {
      expect(problemsOf({ BLOBS_URL: url })).toEqual([expect.stringMatching(/^BLOBS_URL: must /)]);
    },
  );

  test.each(["HOST", "TOOLYARD_DATA_DIR", "TOOLYARD_DEFAULT_MODEL", "DATABASE_AUTH_TOKEN"])(
    "%s of nothing but blanks is refused: it would be taken for a name",
    (name) => {
      expect(problemsOf({ [name]: " \t" })).toEqual([`${name}: must hold more than blanks; leave it out or empty`]);
    },
  );

  test("that are addresses are taken without the blanks around them, which copying leaves there", () => {
    const environment = readEnvironment({
      OPENAI_BASE_URL: "https://models.example/v1/ ",
      TOOLYARD_PUBLIC_URL: "https://tools.example\r",
      TOOLYARD_WS_URL: "wss://tools.example/ws\n",
      QUEUE_URL: "https://sqs.example/1/short ",
      QUEUE_LONG_URL: "https://sqs.example/1/long ",
    });
    expect(environment).toMatchObject({
      openaiBaseUrl: "https://models.example/v1",
      publicUrl: "https://tools.example",
      wsUrl: "wss://tools.example/ws",
      queues: { short: "https://sqs.example/1/short", long: "https://sqs.example/1/long" },
    });
  });

  test("take the operator's caps of tenants' settings as JSON", () => {
    const environment = readEnvironment({ TOOLYARD_SETTINGS_CAPS: '{"rounds": 5, "requests_per_minute": 60}' });
    expect(environment.settingsCaps).toEqual({ rounds: 5, requests_per_minute: 60 });
  });

  test.each([
    ["TOOLYARD_SETTINGS_CAPS", '{"round": 5, "rounds": 3}', "there is no 'round'"],
    ["TOOLYARD_SETTINGS_CAPS", '{"default_model": 5}', "there is no 'default_model'"],
    [
      "TOOLYARD_SETTINGS_CAPS",
      '{"wall_clock_ms": 5}',
      "'wall_clock_ms' is not valid: too small: expected number to be >=1000",
    ],
    ["TOOLYARD_MCP_COMMANDS", '{"memory": {"comand": ["x"]}}', "'memory.command' is not valid: "],
    ["TOOLYARD_MCP_COMMANDS", '{"memory": {"command": ["x"], "envs": []}}', "there is no 'memory.envs'"],
  ])("%s=%j says where it is wrong", (name, value, problem) => {
    const problems = problemsOf({ [name]: value });
    expect(problems).toHaveLength(1);
    expect(problems[0]).toContain(problem);
  });

  test("that there are not are told, with the one that may be meant, and those of our other programs are not", () => {
    const { unknown } = readEnvironment({
      TOOLYARD_EGRESS_ALOW: "10.0.0.0/8",
      TOOLYARD_ENTIRELY_MADE_UP_BY_SOMEBODY: "x",
      TOOLYARD_LEFT_EMPTY: "",
      TOOLYARD_NODE_KEY: "ty_node",
      TOOLYARD_BOX_IS_ALONE: "1",
      TOOLYARD_DOMAIN: "tools.example.com",
      EGRESS_ALLOW: "10.0.0.0/8",
    });
    expect(unknown).toEqual([
      { name: "TOOLYARD_EGRESS_ALOW", meant: "TOOLYARD_EGRESS_ALLOW" },
      { name: "TOOLYARD_ENTIRELY_MADE_UP_BY_SOMEBODY", meant: undefined },
    ]);
  });

  test("offer programs as MCP servers by name", () => {
    const environment = readEnvironment({ TOOLYARD_MCP_COMMANDS: '{"memory": {"command": ["mcp-server-memory"]}}' });
    expect(environment.mcpCommands).toEqual({ memory: { command: ["mcp-server-memory"], env: [] } });
  });

  test("let web pages use the MCP endpoint by their origins", () => {
    const { mcpOrigins } = readEnvironment({ TOOLYARD_MCP_ORIGINS: "https://app.example.com, http://localhost:3000" });
    expect(mcpOrigins).toEqual(["https://app.example.com", "http://localhost:3000"]);
    expect(readEnvironment({}).mcpOrigins).toEqual([]);
  });

  test("name two queues of SQS, or none", () => {
    const [short, long] = ["https://sqs.eu-west-1.amazonaws.com/1/short", "https://sqs.eu-west-1.amazonaws.com/1/long"];
    expect(readEnvironment({ QUEUE_URL: short, QUEUE_LONG_URL: long }).queues).toEqual({ short, long });
    expect(readEnvironment({ QUEUE_URL: "database" }).queues).toBeUndefined();
    expect(problemsOf({ QUEUE_URL: short })).toEqual(["QUEUE_LONG_URL: must be set with QUEUE_URL"]);
    expect(problemsOf({ QUEUE_LONG_URL: long })).toEqual([expect.stringMatching(/^QUEUE_URL: must be/)]);
    expect(problemsOf({ QUEUE_URL: short, QUEUE_LONG_URL: short })).toEqual([expect.stringMatching(/another queue/)]);
  });

  test("that cannot be used are all named at once", () => {
    expect(problemsOf({ PORT: "x", DATABASE_URL: "y", TOOLYARD_LOG_LEVEL: "z" })).toHaveLength(3);
  });
});

describe("settings of the plugin box", () => {
  const image = { PATH: "/usr/bin:/bin", AWS_LAMBDA_FUNCTION_MEMORY_SIZE: "2048", TOOLYARD_BOX_IS_ALONE: "1" };

  test("come from Lambda and its image", () => {
    expect(readBoxEnvironment(image)).toEqual({
      path: "/usr/bin:/bin",
      memoryBytes: 2_147_483_648,
      logLevel: "info",
      runs: "plugins",
      egressAllow: [],
    });
    expect(readBoxEnvironment({ ...image, TOOLYARD_BOX_RUNS: "code" }).runs).toBe("code");
  });

  test.for([
    ["TOOLYARD_BOX_IS_ALONE", { TOOLYARD_BOX_IS_ALONE: undefined }],
    ["TOOLYARD_BOX_IS_ALONE", { TOOLYARD_BOX_IS_ALONE: "yes" }],
    ["AWS_SECRET_ACCESS_KEY", { AWS_SECRET_ACCESS_KEY: "of the role" }],
    ["AWS_LAMBDA_FUNCTION_MEMORY_SIZE", { AWS_LAMBDA_FUNCTION_MEMORY_SIZE: "512" }],
  ] as const)("that would make it unsafe end its start: %s", ([name, wrong]) => {
    expect(() => readBoxEnvironment({ ...image, ...wrong })).toThrow(name);
  });
});

describe("settings of traces", () => {
  const collector = { OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:4318" };

  test("are off until a collector is named, whatever else is set for a whole fleet", () => {
    const fleet = { OTEL_SERVICE_NAME: "tools", OTEL_EXPORTER_OTLP_PROTOCOL: "grpc", OTEL_TRACES_SAMPLER: "xray" };
    expect(readEnvironment(fleet).traces).toBeUndefined();
    expect(readEnvironment({ ...collector, OTEL_TRACES_EXPORTER: "none" }).traces).toBeUndefined();
    expect(readEnvironment({ ...collector, OTEL_SDK_DISABLED: "TRUE" }).traces).toBeUndefined();
    expect(readEnvironment({ OTEL_EXPORTER_OTLP_ENDPOINT: "" }).traces).toBeUndefined();
  });

  test("have the standard's defaults", () => {
    expect(readEnvironment(collector).traces).toEqual({
      url: "http://127.0.0.1:4318/v1/traces",
      protocol: "http/protobuf",
      headers: {},
      gzip: false,
      timeoutMs: 10_000,
      everyMs: 5_000,
      sampler: { name: "parentbased_always_on", ratio: 1 },
      serviceName: "toolyard",
      resourceAttributes: {},
    });
  });

  test("take a base address with a path, and that for traces as it is; what is for traces alone comes first", () => {
    const base = { OTEL_EXPORTER_OTLP_ENDPOINT: "https://otlp.example.com/base/?region=eu" };
    expect(readEnvironment(base).traces?.url).toBe("https://otlp.example.com/base/v1/traces?region=eu");
    expect(
      readEnvironment({
        ...base,
        OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "https://traces.example.com/ingest",
        OTEL_EXPORTER_OTLP_HEADERS: "authorization=all",
        OTEL_EXPORTER_OTLP_TRACES_HEADERS: "authorization=Bearer%20a%3Db, x-team = one",
        OTEL_EXPORTER_OTLP_PROTOCOL: "http/protobuf",
        OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: "http/json",
        OTEL_EXPORTER_OTLP_COMPRESSION: "gzip",
        OTEL_EXPORTER_OTLP_TIMEOUT: "2000",
        OTEL_EXPORTER_OTLP_TRACES_TIMEOUT: "3000",
        OTEL_RESOURCE_ATTRIBUTES: "service.name=other,deployment.environment.name=prod%2Ceu",
        OTEL_TRACES_SAMPLER: "parentbased_traceidratio",
        OTEL_TRACES_SAMPLER_ARG: "0.1",
        AWS_LAMBDA_FUNCTION_NAME: "chat",
      }).traces,
    ).toMatchObject({
      url: "https://traces.example.com/ingest",
      headers: { authorization: "Bearer a=b", "x-team": "one" },
      protocol: "http/json",
      gzip: true,
      timeoutMs: 3_000,
      serviceName: "other",
      resourceAttributes: { "deployment.environment.name": "prod,eu", "faas.name": "chat" },
      sampler: { name: "parentbased_traceidratio", ratio: 0.1 },
    });
  });

  test.each([
    ["OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", /must be one of http\/protobuf, http\/json/],
    ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "localhost:4318", /must be an http/],
    ["OTEL_EXPORTER_OTLP_HEADERS", "authorization", /must be like key=value/],
    ["OTEL_EXPORTER_OTLP_HEADERS", "a=%0d%0ab", /visible ASCII/],
    ["OTEL_TRACES_SAMPLER", "jaeger_remote", /must be one of always_on/],
    ["OTEL_TRACES_SAMPLER_ARG", "2", /from 0 to 1/],
    ["OTEL_EXPORTER_OTLP_TIMEOUT", "10s", /milliseconds/],
    ["OTEL_TRACES_EXPORTER", "zipkin", /must be one of otlp, none/],
  ])("that cannot be used are named: %s=%s", (name, value, problem) => {
    const problems = problemsOf({ ...collector, [name]: value });
    expect(problems).toHaveLength(1);
    expect(problems[0]).toMatch(new RegExp(`^${name}: `));
    expect(problems[0]).toMatch(problem);
    expect(problems[0]).not.toContain(value);
  });
});
