import { twoInstancesOfFile, twoInstancesOfServer } from "../support/two-instances.ts";
import { describeKnowledgeRepo } from "./knowledge-repo.ts";

describeKnowledgeRepo("file", twoInstancesOfFile);
describeKnowledgeRepo("server", twoInstancesOfServer);
