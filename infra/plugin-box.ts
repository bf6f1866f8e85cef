/**
 * Where processes of stdio plugins run: an image with an environment for each tenant. What runs inside can read
 * the role's credentials, so the role may write its own log and nothing else; whatever a plugin
 * needs comes with the invocation. SST has no component for such a function.
 */
import { join } from "node:path";
import { createLogGroup, onlyLambda, writeLog } from "./function.ts";
import { seconds } from "./limits.ts";
import type { Permission } from "./permission.ts";
import { isPermanent } from "./settings.ts";

const keptImages = 10;

const repository = new aws.ecr.Repository("PluginBoxImages", {
  name: `${$app.name}-${$app.stage}-plugin-box`,
  forceDelete: !isPermanent,
  imageScanningConfiguration: { scanOnPush: true },
});

new aws.ecr.LifecyclePolicy("PluginBoxImagesKept", {
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

const image = new dockerbuild.Image("PluginBoxImage", {
  // Relative paths would be looked up in `.sst/platform`.
  context: { location: join($cli.paths.root, "functions") },
  dockerfile: { location: join($cli.paths.root, "functions/plugin-box/Dockerfile") },
  platforms: ["linux/arm64"],
  push: true,
  tags: [$interpolate`${repository.repositoryUrl}:latest`],
  registries: [
    { address: registry.proxyEndpoint, username: registry.userName, password: $util.secret(registry.password) },
  ],
});

const log = createLogGroup("PluginBox");

const role = new aws.iam.Role("PluginBoxRole", {
  assumeRolePolicy: onlyLambda,
  managedPolicyArns: [],
  inlinePolicies: [
    {
      name: "log",
      policy: aws.iam.getPolicyDocumentOutput({ statements: [{ effect: "Allow", ...writeLog(log) }] }).json,
    },
  ],
});

export const pluginBox = new aws.lambda.Function("PluginBox", {
  name: `${$app.name}-${$app.stage}-plugin-box`,
  description: "Runs processes of plugins, one environment a tenant",
  packageType: "Image",
  imageUri: $interpolate`${repository.repositoryUrl}@${image.digest}`,
  architectures: ["arm64"],
  role: role.arn,
  timeout: seconds.pluginBox,
  memorySize: 2048,
  ephemeralStorage: { size: 1024 },
  // Given for ever: it cannot be changed on a function that exists.
  tenancyConfig: { tenantIsolationMode: "PER_TENANT" },
  loggingConfig: { logFormat: "JSON", logGroup: log.name },
});

/** Also for invocations with response streaming. */
export const runPlugins: Permission = { actions: ["lambda:InvokeFunction"], resources: [pluginBox.arn] };
