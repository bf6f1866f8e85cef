/**
 * Functions in which programs run that are not ours: an image with an environment for each tenant. What runs inside
 * can read the role's credentials, so the role may write its own log and nothing else; whatever a program needs comes
 * with the invocation. SST has no component for such a function.
 */
import { join } from "node:path";
import { createLogGroup, onlyLambda, writeLog } from "./function.ts";
import { isPermanent } from "./settings.ts";

export interface BoxSpec {
  /** Directory of its Dockerfile in `functions/`; also a part of its names. */
  readonly directory: string;
  readonly description: string;
  readonly seconds: number;
  /** Absent: it reaches the internet. */
  readonly network?: {
    readonly subnetIds: readonly $util.Output<string>[];
    readonly securityGroupIds: readonly $util.Output<string>[];
  };
}

const keptImages = 10;

export function createBox(name: string, spec: BoxSpec): aws.lambda.Function {
  const fullName = `${$app.name}-${$app.stage}-${spec.directory}`;
  const log = createLogGroup(name);
  const role = createRole(name, { fullName, log, isConnected: spec.network !== undefined });
  return new aws.lambda.Function(name, {
    name: fullName,
    description: spec.description,
    packageType: "Image",
    imageUri: createImage(name, { fullName, directory: spec.directory }),
    architectures: ["arm64"],
    role: role.arn,
    timeout: spec.seconds,
    memorySize: 2048,
    ephemeralStorage: { size: 1024 },
    // Given for ever: it cannot be changed on a function that exists.
    tenancyConfig: { tenantIsolationMode: "PER_TENANT" },
    loggingConfig: { logFormat: "JSON", logGroup: log.name },
    ...(spec.network === undefined
      ? {}
      : {
          vpcConfig: {
            subnetIds: [...spec.network.subnetIds],
            securityGroupIds: [...spec.network.securityGroupIds],
          },
        }),
  });
}

function createImage(
  name: string,
  { fullName, directory }: { readonly fullName: string; readonly directory: string },
): $util.Output<string> {
  const repository = new aws.ecr.Repository(`${name}Images`, {
    name: fullName,
    forceDelete: !isPermanent,
    imageScanningConfiguration: { scanOnPush: true },
  });
  new aws.ecr.LifecyclePolicy(`${name}ImagesKept`, {
    repository: repository.name,
    policy: JSON.stringify({
      rules: [
        {
          rulePriority: 1,
          description: `Keep the newest ${keptImages} images, for rollbacks`,
          selection: { tagStatus: "any", countType: "imageCountMoreThan", countNumber: keptImages },
          action: { type: "expire" },
        },
      ],
    }),
  });
  const registry = aws.ecr.getAuthorizationTokenOutput({ registryId: repository.registryId });
  const image = new dockerbuild.Image(`${name}Image`, {
    // Relative paths would be looked up in `.sst/platform`.
    context: { location: join($cli.paths.root, "functions") },
    dockerfile: { location: join($cli.paths.root, "functions", directory, "Dockerfile") },
    platforms: ["linux/arm64"],
    push: true,
    tags: [$interpolate`${repository.repositoryUrl}:latest`],
    registries: [
      { address: registry.proxyEndpoint, username: registry.userName, password: $util.secret(registry.password) },
    ],
  });
  return $interpolate`${repository.repositoryUrl}@${image.digest}`;
}

/** What Lambda itself does with the role where a function is connected to a network. */
const connecting = [
  "ec2:AssignPrivateIpAddresses",
  "ec2:CreateNetworkInterface",
  "ec2:DeleteNetworkInterface",
  "ec2:DescribeNetworkInterfaces",
  "ec2:DescribeSubnets",
  "ec2:UnassignPrivateIpAddresses",
];

function createRole(
  name: string,
  given: { readonly fullName: string; readonly log: aws.cloudwatch.LogGroup; readonly isConnected: boolean },
): aws.iam.Role {
  const network = { actions: connecting, resources: ["*"] };
  const statements: aws.iam.GetPolicyDocumentOutputArgs["statements"] = [
    { effect: "Allow", ...writeLog(given.log) },
    ...(given.isConnected
      ? [
          { effect: "Allow", ...network },
          // Lambda may, and what runs in the function may not.
          {
            effect: "Deny",
            ...network,
            conditions: [
              {
                test: "ArnLike",
                variable: "lambda:SourceFunctionArn",
                values: [`arn:*:lambda:*:*:function:${given.fullName}`],
              },
            ],
          },
        ]
      : []),
  ];
  return new aws.iam.Role(`${name}Role`, {
    assumeRolePolicy: onlyLambda,
    managedPolicyArns: [],
    inlinePolicies: [{ name: "log", policy: aws.iam.getPolicyDocumentOutput({ statements }).json }],
  });
}
