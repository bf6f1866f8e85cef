/** One way to make a function of ours: its runtime, its bundle, its log, its role, its settings. */
import { bundlePath, type BundleName } from "./bundles.ts";
import { storageKey } from "./keys.ts";
import { logRetentionDays } from "./limits.ts";
import type { Permission } from "./permission.ts";

export type Variables = Readonly<Record<string, $util.Input<string>>>;

export interface FunctionSpec {
  readonly bundle: BundleName;
  readonly description: string;
  readonly seconds: number;
  readonly memoryMb: 512 | 1024;
  readonly variables: Variables;
  /** Beside writing its own log. */
  readonly may: readonly Permission[];
  readonly streaming?: boolean;
  /** What has to be done before this code is in place. */
  readonly after?: readonly $util.Resource[];
}

export const onlyLambda = aws.iam.assumeRolePolicyForPrincipal({ Service: "lambda.amazonaws.com" });

export function createFunction(name: string, spec: FunctionSpec): sst.aws.Function {
  const logs = createLogGroup(name);
  return new sst.aws.Function(name, {
    description: spec.description,
    bundle: bundlePath(spec.bundle),
    handler: `${spec.bundle}.handler`,
    runtime: "nodejs24.x",
    architecture: "arm64",
    timeout: `${spec.seconds} seconds`,
    memory: `${spec.memoryMb} MB`,
    streaming: spec.streaming ?? false,
    environment: { ...spec.variables },
    permissions: [...spec.may, writeLog(logs)],
    // Lambda's own lines become JSON beside ours.
    logging: { logGroup: logs.name, format: "json" },
    // Events that Lambda queues by itself (the scheduler's) are of no use later, nor after waiting for a free one: it
    // would try for six hours.
    retries: 0,
    transform: {
      role: (args) => {
        // AWS's policy for logs allows every log group of the account.
        args.managedPolicyArns = [];
        // SST 4.17.1 lets every principal of the account take the role as well, meant for its live mode.
        args.assumeRolePolicy = onlyLambda;
        return undefined;
      },
      eventInvokeConfig: { maximumEventAgeInSeconds: 60 },
      function: (args, options) => {
        args.kmsKeyArn = storageKey.arn;
        options.dependsOn = [...(spec.after ?? [])];
        return undefined;
      },
    },
  });
}

const logGroups = new Map<string, aws.cloudwatch.LogGroup>();

export function createLogGroup(name: string): aws.cloudwatch.LogGroup {
  const group = new aws.cloudwatch.LogGroup(`${name}Log`, {
    name: `/${$app.name}/${$app.stage}/${name}`,
    retentionInDays: logRetentionDays,
  });
  logGroups.set(name, group);
  return group;
}

/** Of a function that is there already. */
export function logGroupOf(name: string): aws.cloudwatch.LogGroup {
  const group = logGroups.get(name);
  if (group === undefined) throw new Error(`${name} has no log yet`);
  return group;
}

export function writeLog(group: aws.cloudwatch.LogGroup): Permission {
  return {
    actions: ["logs:CreateLogStream", "logs:PutLogEvents"],
    // Streams of this one group; their names are made by Lambda.
    resources: [$interpolate`${group.arn}:*`],
  };
}
