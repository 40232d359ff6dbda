import com.google.gson.Gson;
import com.google.gson.reflect.TypeToken;
import io.kubernetes.client.openapi.apis.CoreV1Api;
import io.kubernetes.client.openapi.apis.CustomObjectsApi;
import io.kubernetes.client.openapi.models.V1Pod;
import io.kubernetes.client.util.Config;
import io.kubernetes.client.util.Watch;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;

/**
 * Reads a cluster with the official Java client, and prints what it has as one line of JSON.
 * Arguments: a kubeconfig, a namespace, the group of the custom resource things.
 */
class Read {
  public static void main(String[] args) throws Exception {
    var client = Config.fromConfig(args[0]);
    var namespace = args[1];
    var core = new CoreV1Api(client);
    var out = new LinkedHashMap<String, Object>();
    var pods = new ArrayList<List<Object>>();
    for (var p : core.listNamespacedPod(namespace).execute().getItems()) {
      pods.add(List.of(p.getMetadata().getName(), p.getStatus().getPhase()));
    }
    out.put("pods", pods);
    var secrets = new ArrayList<List<Object>>();
    for (var s : core.listNamespacedSecret(namespace).execute().getItems()) {
      secrets.add(List.of(s.getMetadata().getName(), new String(s.getData().values().iterator().next())));
    }
    out.put("secrets", secrets);
    var things = new Gson().toJsonTree(new CustomObjectsApi(client)
        .listNamespacedCustomObject(args[2], "v1", namespace, "things").execute());
    var sizes = new ArrayList<String>();
    for (var t : things.getAsJsonObject().getAsJsonArray("items")) {
      var thing = t.getAsJsonObject();
      sizes.add(thing.getAsJsonObject("metadata").get("name") + " " + thing.getAsJsonObject("spec").get("size"));
    }
    out.put("things", sizes);
    var watched = new ArrayList<String>();
    var call = core.listNamespacedPod(namespace).watch(true).timeoutSeconds(1).buildCall(null);
    try (Watch<V1Pod> watch =
        Watch.createWatch(client, call, new TypeToken<Watch.Response<V1Pod>>() {}.getType())) {
      for (var event : watch) {
        watched.add(event.type + " " + event.object.getMetadata().getName());
      }
    }
    out.put("watched", watched);
    System.out.println(new Gson().toJson(out));
    System.exit(0); // the HTTP client's threads would wait
  }
}
