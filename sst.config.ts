/**
 * The gateway on AWS (design "AWS"): one file a concern in `infra/`. `npx sst deploy --stage …`
 * deploys it, `npm run test:infra` synthesises it without an account. docs/deploy.md tells the rest.
 */
/** @public */
export default $config({
  app(input) {
    // One stage is for good: nothing of it is removed by accident, and its data outlives the stack.
    const isPermanent = input.stage === "production";
    return {
      name: "toolyard",
      home: "aws",
      removal: isPermanent ? "retain" : "remove",
      protect: isPermanent,
      providers: {
        aws: { version: "7.20.0", defaultTags: { tags: { "toolyard:stage": input.stage } } },
        "docker-build": "0.0.14",
      },
    };
  },
  async run() {
    // What an operator has forgotten is said first.
    await import("./infra/settings.ts");
    const { buildBundles } = await import("./infra/bundles.ts");
    buildBundles();
    const { publicUrl, realtimeUrl } = await import("./infra/gateways.ts");
    const { blobs } = await import("./infra/storage.ts");
    await import("./infra/api.ts");
    await import("./infra/realtime.ts");
    await import("./infra/worker.ts");
    await import("./infra/tick.ts");
    await import("./infra/alarms.ts");
    return { url: publicUrl, realtimeUrl, blobs: blobs.name };
  },
});
